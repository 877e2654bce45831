package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gopcua/opcua/ua"
)

// TestReproduces: what is committed is what the generator writes, byte for byte.
func TestReproduces(t *testing.T) {
	dir := t.TempDir()
	if err := generate(dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_gen.go"))
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		got, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("..", filepath.Base(f)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go generate ./uaserver/wire", filepath.Base(f))
		}
	}
}

type (
	loop  struct{ Next []*loop }
	empty struct{ Of []*struct{} }
	odd   struct{ C chan int }
	row   struct{ Cells [][]*ua.Range }
)

// TestUnbounded: a struct whose decoding could not be bounded, or has no encoding, is no code but an error.
func TestUnbounded(t *testing.T) {
	for _, v := range []any{new(loop), new(empty), new(odd), new(row)} {
		if _, err := newGenerator().min(reflect.TypeOf(v)); err == nil {
			t.Errorf("%T was accepted", v)
		}
	}
	if n, err := newGenerator().min(reflect.TypeFor[*ua.ReadValueID]()); n != 16 || err != nil {
		t.Errorf("a ReadValueId takes at least %d bytes, %v; want 16", n, err)
	}
}
