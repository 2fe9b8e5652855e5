//go:build linux

package cgroup

import (
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
