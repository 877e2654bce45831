package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"edged/drivers/tag"
)

// siteOf100000 is the devices of a site with 100,000 tags that have a range and a unit.
func siteOf100000(modbus bool) string {
	const usual = `, range: [0, 150], unit: "°C"}`
	if !modbus {
		return `devices: [{name: d, driver: memory, tags: [{name: "m{n}", repeat: 100000, access: readwrite` + usual + "]}]\n"
	}
	text := strings.Builder{}
	text.WriteString("buses: [{name: l, url: \"tcp://127.0.0.1:1\"}]\ndevices:\n")
	for i := range 10 {
		fmt.Fprintf(&text, `- {name: d%d, bus: l, tags: [{name: "m{n}", repeat: 10000, address: "holding:0", type: float32%s]}`+"\n", i, usual)
	}
	return text.String()
}

// heap is the bytes of live objects.
func heap() int64 {
	runtime.GC()
	runtime.GC() // pools let go at the second time
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCostOfATag bounds what a tag takes in the whole gateway: site, table, driver, plan, nodes and last value.
func TestCostOfATag(t *testing.T) {
	for _, row := range []struct {
		name string
		site string
		most int64 // bytes of heap a tag
	}{{"memory", siteOf100000(false), 380}, {"modbus", siteOf100000(true), 385}} {
		if raceEnabled {
			row.most = 400 // with the detector the same tags were seen to take 8 bytes more
		}
		t.Run(row.name, func(t *testing.T) {
			startSite(t, siteHead+oneDevice) // what is made once is there
			before := heap()
			began := time.Now()
			g, _ := startSite(t, siteHead+row.site)
			endpointUp(t, g)
			took := time.Since(began)
			eventually(t, "the first reading of the last tag", func() bool {
				v, _, ok := g.tags.Last(100_000)
				return ok && v.Status != tag.BadWaitingForInitialData || row.name == "modbus"
			})
			each := (heap() - before) / 100_000
			t.Logf("%d bytes a tag, started in %v", each, took.Round(time.Millisecond))
			if each > row.most {
				t.Errorf("a tag takes %d bytes, at most %d", each, row.most)
			}
			if took > 20*time.Second { // below 2 s on a machine that does nothing else
				t.Errorf("started in %v", took)
			}
			runtime.KeepAlive(g)
		})
	}
}
