//go:build linux

package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKillable(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"init", "system/apid", "system/containerd", "system/run-abc", "k8s.io/pod"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	var got []string
	for _, dir := range killable(root, []string{"apid"}) {
		rel, _ := filepath.Rel(root, dir)
		got = append(got, rel)
	}
	if diff := cmp.Diff([]string{"k8s.io", "system/containerd", "system/run-abc"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAwaitEmpty(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	for content, want := range map[string]error{"": nil, "populated 0\nfrozen 0\n": nil, "populated 1\nfrozen 0\n": context.Canceled} {
		dir := t.TempDir()
		if content != "" { // else the group is gone
			if err := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := awaitEmpty(ended, dir); !errors.Is(got, want) {
			t.Errorf("%q: got %v, want %v", content, got, want)
		}
	}
}
