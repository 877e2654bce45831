package subscription

import "testing"

// TestStates has a row for each row of Part 4, 5.14.1.2, table 82, and for the edges between them.
func TestStates(t *testing.T) {
	all := facts{enabled: true, keepAlive: 5, every: 10, lifetime: 30}
	with := func(change func(f *facts)) facts {
		f := all
		change(&f)
		return f
	}
	keep := closed // for rows that keep the state
	rows := []struct {
		name   string
		row    int
		from   state
		event  event
		facts  facts
		to     state
		action action
	}{
		{"create", 1, closed, onCreate, all, creating, 0},
		{"create failed", 2, creating, onCreateFailed, all, closed, 0},
		{"created", 3, creating, onCreated, all, normal, resetLifetime | resetKeepAlive | clearMore},
		{"publish, nothing more", 4, normal, onPublish, all, normal, deleteAcked | enqueue},
		{"publish, more, disabled", 4, normal, onPublish, with(func(f *facts) { f.more, f.enabled = true, false }), normal, deleteAcked | enqueue},
		{"publish, more", 5, normal, onPublish, with(func(f *facts) { f.more = true }), normal, resetLifetime | deleteAcked | returnMessage},
		{"timer, notifications", 6, normal, onTimer, with(func(f *facts) { f.queued, f.available = true, true }), normal,
			startTimer | resetLifetime | dequeue | returnMessage},
		{"timer, first, nothing", 7, normal, onTimer, with(func(f *facts) { f.queued = true }), keepAlive,
			startTimer | resetLifetime | resetKeepAlive | dequeue | returnKeepAlive},
		{"timer, first, disabled", 7, normal, onTimer, with(func(f *facts) { f.queued, f.available, f.enabled = true, true, false }), keepAlive,
			startTimer | resetLifetime | resetKeepAlive | dequeue | returnKeepAlive},
		{"timer, no request, first", 8, normal, onTimer, all, late, startTimer},
		{"timer, no request, notifications", 8, normal, onTimer, with(func(f *facts) { f.sent, f.available = true, true }), late, startTimer},
		{"timer, sent, nothing", 9, normal, onTimer, with(func(f *facts) { f.sent = true }), keepAlive, startTimer | resetKeepAlive | countKeepAlive},
		{"timer, sent, nothing, queued", 9, normal, onTimer, with(func(f *facts) { f.sent, f.queued = true, true }), keepAlive,
			startTimer | resetKeepAlive | countKeepAlive},
		{"timer, sent, disabled", 9, normal, onTimer, with(func(f *facts) { f.sent, f.available, f.enabled = true, true, false }), keepAlive,
			startTimer | resetKeepAlive | countKeepAlive},
		{"timer, keep-alive at each, queued", 9, normal, onTimer, with(func(f *facts) { f.sent, f.queued, f.every = true, true, 1 }), keepAlive,
			startTimer | resetLifetime | resetKeepAlive | dequeue | returnKeepAlive},
		{"timer, keep-alive at each, no request", 9, normal, onTimer, with(func(f *facts) { f.sent, f.every = true, 1 }), late, startTimer},
		{"late publish, notifications", 10, late, onPublish, with(func(f *facts) { f.available = true }), normal, resetLifetime | deleteAcked | returnMessage},
		{"late publish, more", 10, late, onPublish, with(func(f *facts) { f.more = true }), normal, resetLifetime | deleteAcked | returnMessage},
		{"late publish, nothing", 11, late, onPublish, all, keepAlive, resetLifetime | resetKeepAlive | deleteAcked | returnKeepAlive},
		{"late publish, disabled", 11, late, onPublish, with(func(f *facts) { f.available, f.enabled = true, false }), keepAlive,
			resetLifetime | resetKeepAlive | deleteAcked | returnKeepAlive},
		{"late timer", 12, late, onTimer, all, late, startTimer},
		{"keep-alive publish", 13, keepAlive, onPublish, all, keepAlive, deleteAcked | enqueue},
		{"keep-alive timer, notifications", 14, keepAlive, onTimer, with(func(f *facts) { f.queued, f.available = true, true }), normal,
			startTimer | resetLifetime | dequeue | returnMessage},
		{"keep-alive due", 15, keepAlive, onTimer, with(func(f *facts) { f.queued, f.keepAlive = true, 1 }), keepAlive,
			startTimer | resetLifetime | resetKeepAlive | dequeue | returnKeepAlive},
		{"keep-alive due, disabled", 15, keepAlive, onTimer, with(func(f *facts) { f.queued, f.available, f.enabled, f.keepAlive = true, true, false, 1 }), keepAlive,
			startTimer | resetLifetime | resetKeepAlive | dequeue | returnKeepAlive},
		{"keep-alive not due", 16, keepAlive, onTimer, all, keepAlive, startTimer | countKeepAlive},
		{"keep-alive not due, queued", 16, keepAlive, onTimer, with(func(f *facts) { f.queued = true }), keepAlive, startTimer | countKeepAlive},
		{"keep-alive due, no request", 17, keepAlive, onTimer, with(func(f *facts) { f.keepAlive = 1 }), late, startTimer},
		{"keep-alive, notifications, no request", 17, keepAlive, onTimer, with(func(f *facts) { f.available = true }), late, startTimer},
		{"modify", 18, late, onModify, all, keep, resetLifetime},
		{"publishing mode", 19, normal, onSetPublishing, all, keep, resetLifetime | clearMore},
		{"republish", 20, keepAlive, onRepublish, with(func(f *facts) { f.found = true }), keep, resetLifetime},
		{"republish, not there", 21, keepAlive, onRepublish, all, keep, resetLifetime},
		{"items", 0, normal, onItems, all, keep, resetLifetime},
		{"transfer within the session", 22, keepAlive, onTransfer, with(func(f *facts) { f.validated = true }), keep, resetLifetime},
		{"transfer", 23, late, onTransfer, with(func(f *facts) { f.changed, f.validated = true, true }), keep, resetLifetime | issueStatus | setSession},
		{"transfer to another user", 24, normal, onTransfer, with(func(f *facts) { f.changed = true }), keep, 0},
		{"delete", 25, late, onDelete, all, closed, deleteItems},
		{"lifetime over", 27, normal, onTimer, with(func(f *facts) { f.lifetime, f.queued, f.available = 1, true, true }), closed, deleteItems | issueStatus},
		{"lifetime over, late", 27, late, onTimer, with(func(f *facts) { f.lifetime = 1 }), closed, deleteItems | issueStatus},
		{"lifetime over, keep-alive", 27, keepAlive, onTimer, with(func(f *facts) { f.lifetime = 1 }), closed, deleteItems | issueStatus},
		{"closed hears nothing", -1, closed, onTimer, all, closed, 0},
		{"creating hears no timer", -1, creating, onTimer, all, creating, 0},
	}
	seen := map[int]bool{}
	for _, r := range rows {
		want := r.to
		if want == keep && (r.event >= onModify && r.event <= onItems || r.event == onTransfer) {
			want = r.from
		}
		number, to, do := next(r.from, r.event, r.facts)
		if number != r.row || to != want || do != r.action {
			t.Errorf("%s: %v gives row %d, %v, %b; want row %d, %v, %b", r.name, r.from, number, to, do, r.row, want, r.action)
		}
		seen[number] = true
	}
	for i := range table {
		if !seen[table[i].number] {
			t.Errorf("row %d is not tested", table[i].number)
		}
	}
}

// TestStatesAreComplete: in each living state every event finds a row, whatever the facts.
func TestStatesAreComplete(t *testing.T) {
	for bits := range 1 << 7 {
		f := facts{queued: bits&1 != 0, enabled: bits&2 != 0, available: bits&4 != 0, more: bits&8 != 0, sent: bits&16 != 0,
			found: bits&32 != 0, changed: bits&32 != 0, validated: bits&64 != 0, every: 10}
		for _, f.keepAlive = range []uint32{0, 1, 2, 10} {
			for _, f.lifetime = range []uint32{0, 1, 2, 30} {
				for _, s := range []state{normal, late, keepAlive} {
					for e := onPublish; e <= onTransfer; e++ {
						number, to, do := next(s, e, f)
						if number < 0 {
							t.Fatalf("%v has no row for event %d with %+v", s, e, f)
						}
						if do&(returnMessage|returnKeepAlive) != 0 && e == onTimer && !f.queued {
							t.Fatalf("row %d sends without a request: %+v", number, f)
						}
						if do&returnMessage != 0 && !f.enabled {
							t.Fatalf("row %d sends notifications of a disabled Subscription", number)
						}
						if to == closed && do&deleteItems == 0 {
							t.Fatalf("row %d closes and keeps the items", number)
						}
					}
				}
			}
		}
	}
}
