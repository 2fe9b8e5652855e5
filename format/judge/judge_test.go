package judge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlace(t *testing.T) {
	for _, c := range []struct{ args, files, want []string }{
		{[]string{"-v", "disk.raw"}, []string{"/tmp/1/disk.raw"}, []string{"-v", "/tmp/1/disk.raw"}},
		{[]string{"-v"}, []string{"/tmp/1/disk.raw"}, []string{"-v", "/tmp/1/disk.raw"}},
		{[]string{"-i", "a", "::a/b"}, []string{"/x/a"}, []string{"-i", "/x/a", "::a/b"}},
	} {
		if diff := cmp.Diff(c.want, place(c.args, c.files)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestCommand(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{"usr/bin/tool": "\x7fELF", "usr/bin/ukify": "#!/usr/bin/env python3\n", "usr/bin/python3": "\x7fELF"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd, err := command(root, "tool")
	if err != nil {
		t.Fatal(err)
	}
	if got := cmd.Args[len(cmd.Args)-1]; got != root+"/usr/bin/tool" || !strings.HasPrefix(cmd.Path, root) {
		t.Errorf("got %s %v", cmd.Path, cmd.Args)
	}
	cmd, err = command(root, "ukify")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cmd.Args[3:], " "); got != root+"/usr/bin/python3 "+root+"/usr/bin/ukify" {
		t.Errorf("a script is run as %s", got)
	}
	if _, err := command(root, "absent"); err == nil || !strings.Contains(err.Error(), "cannot find absent") {
		t.Errorf("got %v", err)
	}
}
