package address

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"edged/uaserver/wire"
)

// What byText finds is what a map finds, whatever was added and removed before, and a copy is apart from what it was
// made of.
func TestByTextAsAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now, want := &byText{}, map[string]*Node{}
	check := func(step int, x *byText) {
		t.Helper()
		if x.n != len(want) {
			t.Fatalf("step %d: %d nodes, want %d", step, x.n, len(want))
		}
		for i := range 400 {
			text := strconv.Itoa(i)
			if got := x.find(text); got != want[text] {
				t.Fatalf("step %d: %s is %v, want %v", step, text, got, want[text])
			}
		}
	}
	for step := range 4000 {
		text := strconv.Itoa(random.IntN(400))
		if step/500%2 == 1 && random.IntN(3) > 0 || want[text] != nil {
			now.remove(text)
			delete(want, text)
		} else {
			n := &Node{ID: wire.TextID(NamespacePlant, text)}
			now.add(n)
			want[text] = n
		}
		if step%100 == 0 {
			check(step, now)
			was := now
			now = now.clone()
			check(step, now)
			was.remove(text)
			was.add(&Node{ID: wire.TextID(NamespacePlant, "another")})
			check(step, now)
		}
		if len(now.nodes) > 8 && now.n*5 > len(now.nodes)*4 {
			t.Fatalf("step %d: %d of %d places are taken", step, now.n, len(now.nodes))
		}
	}
	check(4000, now)
	var none *byText
	if none.find("a") != nil || (&byText{}).find("") != nil {
		t.Error("something is found where nothing is")
	}
}
