package uatest

import (
	"reflect"
	"testing"
	"time"
)

// AwaitPublishLoop waits until the publish loop of client, a *opcua.Client of gopcua that is connected, has taken the
// pause that it begins with; Subscribe works from then on. The loop takes pauses and resumptions from two channels, in
// any order where both have one. A Subscribe that comes first resumes a loop that runs and then pauses for ever: the
// client never sends a Publish request, and tells nobody. On a loaded machine that is one client in a few hundred.
func AwaitPublishLoop(tb testing.TB, client any) {
	tb.Helper()
	pauses := reflect.ValueOf(client).Elem().FieldByName("pausech")
	if !pauses.IsValid() {
		tb.Fatal("gopcua's client has no pausech any more: see how its publish loop begins, and whether this is still needed")
	}
	for end := time.Now().Add(time.Minute); pauses.Len() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal("the publish loop of gopcua's client does not begin")
		}
	}
}
