package debian

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/pkgs/debian/debiantest"
)

type file = debiantest.File

func debOf(t *testing.T, name string, files ...file) Deb {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, debiantest.Deb(t, files...), 0o644); err != nil {
		t.Fatal(err)
	}
	return Deb{Name: name, Open: func() (*os.File, error) { return os.Open(path) }}
}

// summary describes a tree as text, a line for each file.
func summary(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, dir)
		switch {
		case d.IsDir():
			all[rel] = fmt.Sprintf("dir %04o", info.Mode().Perm())
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			all[rel] = "link " + target
		default:
			body, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			all[rel] = fmt.Sprintf("file %04o %s", uint32(info.Mode().Perm())|uint32(info.Mode()&fs.ModeSetuid), body)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUnpack(t *testing.T) {
	base := debOf(t, "base-files",
		file{Name: "./", Type: tar.TypeDir, Mode: 0o755},
		file{Name: "./usr/", Type: tar.TypeDir, Mode: 0o755},
		file{Name: "./usr/bin/", Type: tar.TypeDir, Mode: 0o755},
		file{Name: "./bin", Type: tar.TypeSymlink, Link: "usr/bin"},
	)
	cases := map[string]struct {
		debs []Deb
		want map[string]string
		err  string
	}{
		"usr-merge, links, modes": {
			debs: []Deb{base, debOf(t, "a",
				file{Name: "./bin/", Type: tar.TypeDir, Mode: 0o755},
				file{Name: "./bin/a", Body: "a", Mode: 0o4755},
				file{Name: "./bin/b", Type: tar.TypeLink, Link: "./bin/a"},
				file{Name: "./dev/null", Type: tar.TypeChar},
				file{Name: "./etc/x/y", Body: "y"},
			)},
			want: map[string]string{
				"/usr": "dir 0755", "/usr/bin": "dir 0755", "/bin": "link usr/bin", "/usr/bin/a": "file 0755 a", "/usr/bin/b": "file 0755 a",
				"/dev": "dir 0755", "/etc": "dir 0755", "/etc/x": "dir 0755", "/etc/x/y": "file 0644 y",
			},
		},
		"the later package wins": {
			debs: []Deb{debOf(t, "a", file{Name: "./f", Body: "a"}), debOf(t, "b", file{Name: "./f", Body: "b"})},
			want: map[string]string{"/f": "file 0644 b"},
		},
		"an absolute link to a folder stays inside": {
			debs: []Deb{debOf(t, "a",
				file{Name: "./opt/real/", Type: tar.TypeDir, Mode: 0o755},
				file{Name: "./opt/l", Type: tar.TypeSymlink, Link: "/opt/real"},
				file{Name: "./opt/l/f", Body: "f"},
			)},
			want: map[string]string{"/opt": "dir 0755", "/opt/real": "dir 0755", "/opt/l": "link /opt/real", "/opt/real/f": "file 0644 f"},
		},
		"a file does not go through a link": {
			debs: []Deb{debOf(t, "a", file{Name: "./f", Type: tar.TypeSymlink, Link: "/etc/passwd"}, file{Name: "./f", Body: "x"})},
			want: map[string]string{"/f": "file 0644 x"},
		},
		"dot dot":          {debs: []Deb{debOf(t, "a", file{Name: "../f", Body: "x"})}, err: `cannot create "../f" outside`},
		"hidden dot dot":   {debs: []Deb{debOf(t, "a", file{Name: "./x/../../f", Body: "x"})}, err: "outside"},
		"absolute":         {debs: []Deb{debOf(t, "a", file{Name: "/f", Body: "x"})}, err: `cannot create "/f" outside`},
		"relative escape":  {debs: []Deb{debOf(t, "a", file{Name: "./l", Type: tar.TypeSymlink, Link: "../.."}, file{Name: "./l/f", Body: "x"})}, err: "outside"},
		"hard link escape": {debs: []Deb{debOf(t, "a", file{Name: "./l", Type: tar.TypeLink, Link: "../../etc/passwd"})}, err: "outside"},
		"absolute escape": {
			debs: []Deb{debOf(t, "a", file{Name: "./l", Type: tar.TypeSymlink, Link: "/../../tmp"}, file{Name: "./l/f", Body: "x"})}, err: "outside",
		},
		"loop": {
			debs: []Deb{debOf(t, "a", file{Name: "./l", Type: tar.TypeSymlink, Link: "l"}, file{Name: "./l/f", Body: "x"})}, err: "too many links",
		},
		"through a file": {debs: []Deb{debOf(t, "a", file{Name: "./f", Body: "x"}, file{Name: "./f/g", Body: "x"})}, err: "it is a file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "tree")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := Unpack(t.Context(), dir, c.debs)
			if left, _ := os.ReadDir(outer); len(left) != 1 {
				t.Errorf("files beside the tree: %v", left)
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, summary(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFinish(t *testing.T) {
	dir := t.TempDir()
	deb := debOf(t, "a",
		file{Name: "./usr/bin/mawk", Body: "m", Mode: 0o755}, file{Name: "./usr/bin/gawk", Body: "g", Mode: 0o755},
		file{Name: "./usr/bin/gcc", Body: "c", Mode: 0o755},
		file{Name: "./usr/share/ca-certificates/mozilla/B.crt", Body: "two"},
		file{Name: "./usr/share/ca-certificates/mozilla/A.crt", Body: "one\n"},
	)
	if err := Unpack(t.Context(), dir, []Deb{deb}); err != nil {
		t.Fatal(err)
	}
	if err := Finish(dir); err != nil {
		t.Fatal(err)
	}
	got := summary(t, dir)
	for name, want := range map[string]string{
		"/usr/bin/awk": "link gawk", "/usr/bin/cc": "link gcc", "/usr/bin/yacc": "",
		"/etc/ssl/certs/ca-certificates.crt": "file 0644 one\ntwo\n",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}

func FuzzDeb(f *testing.F) {
	t := &testing.T{}
	f.Add(debiantest.Deb(t, file{Name: "./a", Body: "a"}, file{Name: "./l", Type: tar.TypeSymlink, Link: "a"}))
	f.Add(debiantest.Ar("debian-binary", "2.0\n", "data.tar.xz", "\xfd7zXZ\x00"))
	f.Add(debiantest.Ar("debian-binary", "2.0\n", "data.tar.zst", "\x28\xb5\x2f\xfd"))
	f.Add(debiantest.Ar("debian-binary", "2.0\n", "data.tar", strings.Repeat("\x00", 1024)))
	f.Add([]byte("!<arch>\ndebian-binary   0           0     0     100644  -60       `\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := readEntries(bytes.NewReader(data), int64(len(data)), 1<<20)
		if err != nil {
			return
		}
		dir := filepath.Join(t.TempDir(), "tree")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		w := &treeWriter{root: root, dirs: map[string]string{".": "."}}
		_ = w.write(entries) // may refuse; must not write elsewhere
		if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
			t.Errorf("files beside the tree: %v", left)
		}
	})
}
