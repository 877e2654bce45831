package store

import "edged/drivers/tag"

// Oldest is a time before which there is no history; zero: there is none at all. It asks no disk: of a file that nobody has
// read yet it is when the file was begun, less what a segment may hold.
func (s *Store) Oldest() tag.Time {
	if files := s.history.all(); len(files) > 0 {
		f := files[0]
		at := tag.TimeOf(f.start.Add(-foldAfter))
		if f.mu.TryRLock() {
			if len(f.index) > 0 {
				at = f.index[0].min
			}
			f.mu.RUnlock()
		}
		return at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sealed) > 0 {
		return s.sealed[0].began
	}
	if len(s.open.chunks) == 0 {
		return 0
	}
	return s.open.began
}
