//go:build race

package subscription

// raceEnabled tells that the race detector runs: it makes sync.Pool forget at random, so that allocations mean nothing.
const raceEnabled = true
