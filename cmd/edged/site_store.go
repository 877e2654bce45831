package main

import "time"

// storeSettings are the file's store section.
type storeSettings struct {
	Retention time.Duration
	MaxSize   int64 // bytes
	Commit    time.Duration
	History   []string // patterns of tags whose history is kept, beside those that say so themselves
}

func (r *siteReader) store(n *node) {
	s := &r.site.Store
	r.section(n, "store", []key{
		{"retention", func(v *node) { s.Retention = r.duration(v, "store: retention", time.Hour, 100*365*24*time.Hour) }},
		{"max_size", func(v *node) { s.MaxSize = r.size(v, "store: max_size", 4<<20, 1<<44) }},
		{"commit", func(v *node) { s.Commit = r.duration(v, "store: commit", 100*time.Millisecond, time.Hour) }},
		{"history", func(v *node) {
			s.History = r.texts(v, "store: history")
			for i := range min(len(v.items), len(s.History)) {
				r.patterns = append(r.patterns, pattern{v.items[i], "store: history", s.History[i]})
			}
		}},
	})
}

// markHistory has the tags that a pattern covers keep their history. The patterns are checked elsewhere.
func (s *site) markHistory() {
	if len(s.Store.History) == 0 {
		return
	}
	for i := range s.Tags {
		if t := &s.Tags[i]; anyCovers(s.Store.History, t.Device+"."+t.Name) {
			t.History = true
		}
	}
}
