package main

import (
	"fmt"
	"slices"
)

// pruned are the instances that offer what the server does not serve. Each goes with everything that hangs on pruned
// nodes alone. All types stay. A node comes back by taking its line out when the service behind it is there.
var pruned = []struct {
	id     uint32
	reason string
}{
	{12749, "Server.SetSubscriptionDurable: durable subscriptions are not served"},
	{12886, "Server.RequestServerStateChange: the state is not a client's to change"},
	{12885, "Server.EstimatedReturnTime: not known"},
	{15004, "Server.UrisVersion: sessionless calls are not served"},
	{17634, "Server.LocalTime: the gateway works in UTC"},
	{17594, "Server.Dictionaries: there are none"},
	{24226, "Resources: asset management is not served"},
	{12637, "ServerConfiguration: certificates are not managed through OPC UA"},
	{14443, "PublishSubscribe: PubSub is not served"},
	{32405, "PublishSubscribe's DataSetClasses, likewise"},
	{12166, "OperationLimits.MaxNodesPerHistoryReadEvents: events are not served"},
	{12167, "OperationLimits.MaxNodesPerHistoryUpdateData: clients do not write history"},
	{12168, "OperationLimits.MaxNodesPerHistoryUpdateEvents, likewise"},
	{11274, "HistoryServerCapabilities.MaxReturnEventValues: events are not served"},
	{11713, "OperationLimits.MaxNodesPerNodeManagement: the NodeManagement services are not served"},
	{24101, "ServerCapabilities.ConformanceUnits: none is certified"},
	{15606, "ServerCapabilities.RoleSet: roles are not told to clients"},
	{16134, "NamespaceMetadata.DefaultRolePermissions, likewise"},
	{16135, "NamespaceMetadata.DefaultUserRolePermissions, likewise"},
	{16136, "NamespaceMetadata.DefaultAccessRestrictions, likewise"},
	{2289, "ServerDiagnostics.SamplingIntervalDiagnosticsArray: sampling is not grouped by interval"},
	{11202, "HA Configuration: history has one that says more"},
	{23470, "Aliases: alias names are not served"},
	{31915, "Locations: there are none"},
	{16314, "FileSystem: files are not served"},
}

const (
	server         = 2253
	modellingRules = 2996 // ServerCapabilities.ModellingRules
	modellingRule  = 77   // ModellingRuleType
	organizes      = 35
)

// prune takes out what is not served, and marks the values that the NodeSet leaves to the server.
func (m *model) prune() error {
	gone := map[uint32]bool{}
	for _, p := range pruned {
		if m.byID[p.id] == nil {
			return fmt.Errorf("i=%d is to be pruned, but not in the NodeSet", p.id)
		}
		gone[p.id] = true
	}
	for m.spread(gone) {
	}
	m.nodes = slices.DeleteFunc(m.nodes, func(n *node) bool { return gone[n.id] })
	for id := range gone {
		delete(m.byID, id)
	}
	for _, n := range m.nodes {
		n.forward = slices.DeleteFunc(n.forward, func(e edge) bool { return gone[e.target] })
	}
	m.offerModellingRules()
	m.invert()
	m.byID[2294].access = 1 // EnabledFlag: cannot be switched
	m.markLive(server)
	return nil
}

// offerModellingRules makes all rules browsable from their entry point, which the NodeSet leaves to the server (Part 5,
// 6.3.2).
func (m *model) offerModellingRules() {
	for _, n := range m.nodes {
		if slices.Contains(n.forward, edge{hasTypeDefinition, modellingRule}) {
			rules := m.byID[modellingRules]
			rules.forward = append(rules.forward, edge{organizes, n.id})
		}
	}
}

// spread adds the instances all of whose owners are gone, and reports whether there were any.
func (m *model) spread(gone map[uint32]bool) bool {
	more := false
	for _, n := range m.nodes {
		if gone[n.id] || n.class > classBits["UAMethod"] {
			continue
		}
		owners, left := 0, 0
		for _, e := range m.inverse[n.id] {
			if m.hierarchical(e.kind) {
				owners++
				if !gone[e.target] {
					left++
				}
			}
		}
		if owners > 0 && left == 0 {
			gone[n.id], more = true, true
		}
	}
	return more
}

const hierarchicalReferences = 33

func (m *model) hierarchical(kind uint32) bool { return m.under(kind, hierarchicalReferences) }

// markLive marks the variables below an instance that have no value.
func (m *model) markLive(id uint32) {
	for _, e := range m.byID[id].forward {
		n := m.byID[e.target]
		if !m.hierarchical(e.kind) || n.class > classBits["UAMethod"] {
			continue
		}
		n.live = n.class == classBits["UAVariable"] && n.value == nil
		m.markLive(n.id)
	}
}
