//go:build !race

package subscription

const raceEnabled = false
