//go:build judge

package iso9660_test

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with a committed file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", name), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// report runs xorriso on an image and returns what it prints on standard output's topics, without its greeting.
func report(t *testing.T, image string, command ...string) string {
	t.Helper()
	out := judge.Run(t, append([]string{"xorriso", "-report_about", "WARNING", "-return_with", "WARNING", "32", "-indev", "image.iso"}, command...), image)
	_, out, _ = strings.Cut(out, "\n\n")
	return regexp.MustCompile(`\S*/image\.iso`).ReplaceAllString(out, "image.iso")
}

func TestXorrisoLists(t *testing.T) {
	m := extent.Memory{}
	v := system(m)
	image := write(t, v, m)
	list := report(t, image, "-find", "/", "-exec", "lsdl", "--")
	var kept []string
	many := 0
	for _, l := range strings.Split(list, "\n") {
		if strings.Contains(l, "/many/") {
			many++
		} else {
			kept = append(kept, l)
		}
	}
	if many != 100 {
		t.Errorf("xorriso lists %d of 100 files", many)
	}
	golden(t, "lsdl.txt", strings.Join(kept, "\n"))
	golden(t, "eltorito.txt", report(t, image, "-report_el_torito", "plain"))
	golden(t, "pvd.txt", report(t, image, "-pvd_info"))
}

// TestXorrisoExtracts compares what xorriso reads with what was put in, a file of more than 4 GiB included.
func TestXorrisoExtracts(t *testing.T) {
	m := extent.Memory{}
	v := system(m)
	out := filepath.Join(t.TempDir(), "out")
	report(t, write(t, v, m), "-osirrox", "on", "-extract", "/", out)
	for _, f := range v.Files {
		got, err := os.ReadFile(filepath.Join(out, f.Path))
		if err != nil || !bytes.Equal(got, content(t, v, f, m)) {
			t.Errorf("%s: xorriso read %d bytes, or others than put in (%v)", f.Path, len(got), err)
		}
	}
	// Folders come out without the right to delete from them.
	err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}

	m = extent.Memory{}
	v = large(m)
	image := write(t, v, m)
	golden(t, "large.txt", report(t, image, "-find", "/", "-exec", "report_lba", "--"))
	for name, at := range map[string]string{"huge": "4294967296", "part": "0"} { // the same bytes
		piece := filepath.Join(t.TempDir(), name)
		report(t, image, "-osirrox", "on", "-extract_cut", "/"+name, at, "9", piece)
		if got, err := os.ReadFile(piece); err != nil || string(got) != "100000000" {
			t.Errorf("%s: xorriso read %q (%v)", name, got, err)
		}
	}
}
