//go:build linux

package main

import (
	"strings"
	"testing"
)

func TestStack(t *testing.T) {
	extensions, err := layers([]string{"00-gvisor.sqsh", "01-a,b:c.sqsh", "extensions.yaml", "mnt", "root", "x.sqsh"})
	if err != nil {
		t.Fatal(err)
	}
	if len(extensions) != 2 || extensions[1].image != "/customization/01-a,b:c.sqsh" {
		t.Errorf("got %v", extensions)
	}
	want := "lowerdir=/customization/root:/customization/mnt/01:/customization/mnt/00:/root,redirect_dir=nofollow,metacopy=off"
	if got := overlayOptions(plainFiles, extensions, newRoot); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := layers([]string{"00-a.sqsh", "00-b.sqsh"}); err == nil || !strings.Contains(err.Error(), "number 00 is 00-a.sqsh already") {
		t.Errorf("error %v, want one about number 00", err)
	}
}

// TestFullStackFits: mount(2) takes a page of options.
func TestFullStackFits(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, string([]byte{'0' + byte(i/10), '0' + byte(i%10)})+"-x.sqsh")
	}
	extensions, err := layers(names)
	if err != nil || len(extensions) != 100 {
		t.Fatalf("got %d layers (%v)", len(extensions), err)
	}
	if n := len(overlayOptions(plainFiles, extensions, newRoot)); n >= 4096 {
		t.Errorf("the options have %d bytes", n)
	}
}
