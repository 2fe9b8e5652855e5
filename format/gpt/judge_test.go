//go:build judge

package gpt_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/judge"
)

func TestSgdisk(t *testing.T) {
	plan, err := metal(512).Plan()
	if err != nil {
		t.Fatal(err)
	}
	name := sparse(t, plan)
	verified(t, name)

	// Enlarge the disk as the machine does.
	const size = 5 << 30
	_, writes, err := metal(512).GrowLast(size)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, w := range writes {
		if _, err := f.WriteAt(w.Literal, w.Off); err != nil {
			t.Fatal(err)
		}
	}
	verified(t, name)
}

func TestSfdisk(t *testing.T) {
	plan, err := metal(512).Plan()
	if err != nil {
		t.Fatal(err)
	}
	got := judge.Run(t, []string{"sfdisk", "--dump", "disk.raw"}, sparse(t, plan))
	var lines []string
	for _, l := range strings.Split(strings.TrimSpace(got), "\n") {
		if _, after, ok := strings.Cut(l, "disk.raw"); ok && !strings.HasPrefix(l, "device") {
			l = strings.Join(strings.Fields(after), " ")
		}
		if !strings.HasPrefix(l, "device") {
			lines = append(lines, l)
		}
	}
	want, err := os.ReadFile("testdata/sfdisk.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), lines); diff != "" {
		t.Errorf("sfdisk --dump (-want +got):\n%s", diff)
	}
}

// verified fails the test unless sgdisk finds nothing to complain about; its exit status does not tell.
func verified(t *testing.T, name string) {
	t.Helper()
	got := judge.Run(t, []string{"sgdisk", "-v", "disk.raw"}, name)
	if !strings.Contains(got, "No problems found") || strings.Contains(got, "Warning") || strings.Contains(got, "Caution") {
		t.Errorf("sgdisk -v:\n%s", got)
	}
}
