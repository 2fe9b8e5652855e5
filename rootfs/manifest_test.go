package rootfs

import (
	"strings"
	"testing"
)

func TestManifestRendersSorted(t *testing.T) {
	m, err := NewManifest([]Entry{
		{Path: "/usr/bin", Kind: Directory, Mode: 0o755},
		{Path: "/bin", Kind: Symlink, Mode: 0o777, Target: "usr/bin"},
		{Path: "/usr", Kind: Directory, Mode: 0o755},
		{Path: "/usr/bin/apid", Kind: File, Mode: 0o555, UID: 50, GID: 51, Source: "/in/apid"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "bin s 777 0 0 usr/bin\nusr d 755 0 0\nusr/bin d 755 0 0\nusr/bin/apid f 555 50 51 cat /in/apid\n"
	if got := m.PseudoFile(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestManifestRefuses(t *testing.T) {
	usr := Entry{Path: "/usr", Kind: Directory, Mode: 0o755}
	for _, test := range []struct {
		summary string
		entries []Entry
		want    string
	}{
		{"setuid", []Entry{usr, {Path: "/usr/su", Kind: File, Mode: 0o4755, Source: "/in/su"}}, "setuid"},
		{"twice", []Entry{usr, usr}, "two things at /usr"},
		{"no parent", []Entry{{Path: "/usr/x", Kind: File, Source: "/in/x"}}, "no entry makes"},
		{"climbing", []Entry{{Path: "/usr/../x", Kind: File, Source: "/in/x"}}, "cannot use path"},
		{"white space", []Entry{{Path: "/a b", Kind: Directory}}, "white space"},
		{"below a link", []Entry{{Path: "/l", Kind: Symlink, Target: "usr"}, {Path: "/l/x", Kind: File, Source: "/in/x"}}, "no entry makes"},
		{"empty", []Entry{{Path: "/x", Kind: File}}, "no content"},
	} {
		if _, err := NewManifest(test.entries); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %q", test.summary, err, test.want)
		}
	}
}

func TestSkeletonIsAManifest(t *testing.T) {
	entries := skeleton()
	for path := range texts("v1", "id") {
		entries = append(entries, Entry{Path: path, Kind: File, Mode: 0o444, Source: "/in" + path})
	}
	if _, err := NewManifest(entries); err != nil {
		t.Error(err)
	}
}
