package debian

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// index makes a Packages file of lines "name version field; field".
func index(t *testing.T, lines ...string) []*Package {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		f := strings.SplitN(line, " ", 3)
		b.WriteString("Package: " + f[0] + "\nVersion: " + f[1] + "\nArchitecture: amd64\nFilename: pool/" + f[0] + "\nSize: 1\n")
		b.WriteString("SHA256: " + strings.Repeat("0", 64) + "\n")
		if len(f) == 3 {
			b.WriteString(strings.ReplaceAll(f[2], "; ", "\n") + "\n")
		}
		b.WriteString("\n")
	}
	all, err := ParsePackages(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestResolve(t *testing.T) {
	cases := map[string]struct {
		index []string
		roots string
		want  string
		err   string
	}{
		"chain":           {index: []string{"a 1 Depends: b", "b 1 Pre-Depends: c", "c 1", "d 1"}, roots: "a", want: "a=1 b=1 c=1"},
		"highest version": {index: []string{"a 1.10", "a 1.9", "a 1:0.1", "a 1.10~rc1"}, roots: "a", want: "a=1:0.1"},
		"cycle":           {index: []string{"a 1 Depends: b", "b 1 Depends: a"}, roots: "a", want: "a=1 b=1"},
		"constraint met":  {index: []string{"a 1 Depends: b (>= 2), b (<< 3)", "b 2.5"}, roots: "a", want: "a=1 b=2.5"},
		"constraint not met": {
			index: []string{"a 1 Depends: b (>= 3)", "b 2.5"}, roots: "a", err: `cannot satisfy "b (>= 3)" of a 1 on amd64 (asked for)`,
		},
		"first alternative":              {index: []string{"a 1 Depends: b | c", "b 1", "c 1"}, roots: "a", want: "a=1 b=1"},
		"alternative already chosen":     {index: []string{"a 1 Depends: b | c", "b 1", "c 1"}, roots: "a c", want: "a=1 c=1"},
		"alternative chosen later":       {index: []string{"a 1 Depends: b | c, d", "b 1", "c 1", "d 1 Depends: c"}, roots: "a", want: "a=1 c=1 d=1"},
		"alternative by version":         {index: []string{"a 1 Depends: b (>= 2) | c", "b 1", "c 1"}, roots: "a", want: "a=1 c=1"},
		"alternative missing":            {index: []string{"a 1 Depends: nowhere | c", "c 1"}, roots: "a", want: "a=1 c=1"},
		"provides":                       {index: []string{"a 1 Depends: v", "p 1 Provides: v"}, roots: "a", want: "a=1 p=1"},
		"provides by priority":           {index: []string{"a 1 Depends: v", "p 1 Provides: v; Priority: optional", "q 1 Provides: v; Priority: required"}, roots: "a", want: "a=1 q=1"},
		"versioned provides":             {index: []string{"a 1 Depends: v (>= 2)", "p 1 Provides: v (= 1)", "q 1 Provides: v (= 2)"}, roots: "a", want: "a=1 q=1"},
		"unversioned provides":           {index: []string{"a 1 Depends: v (>= 2)", "p 1 Provides: v"}, roots: "a", err: "cannot satisfy"},
		"real package before provider":   {index: []string{"a 1 Depends: v", "p 1 Provides: v", "v 1"}, roots: "a", want: "a=1 v=1"},
		"any":                            {index: []string{"a 1 Depends: p:any (>= 1)", "p 1"}, roots: "a", want: "a=1 p=1"},
		"our architecture":               {index: []string{"a 1 Depends: p:amd64", "p 1"}, roots: "a", want: "a=1 p=1"},
		"another architecture":           {index: []string{"a 1 Depends: p:arm64", "p 1"}, roots: "a", err: "cannot satisfy"},
		"restriction for another":        {index: []string{"a 1 Depends: p [arm64]", "p 1"}, roots: "a", want: "a=1"},
		"restriction against us":         {index: []string{"a 1 Depends: p [!amd64]", "p 1"}, roots: "a", want: "a=1"},
		"recommends are not followed":    {index: []string{"a 1 Recommends: b", "b 1"}, roots: "a", want: "a=1"},
		"conflict":                       {index: []string{"a 1 Depends: b; Conflicts: b (<< 2)", "b 1"}, roots: "a", err: "cannot have both a (asked for) and b (needed by a, asked for)"},
		"conflict with an older version": {index: []string{"a 1 Depends: b; Breaks: b (<< 1)", "b 1"}, roots: "a", want: "a=1 b=1"},
		"conflict with its own provides": {index: []string{"a 1 Provides: v; Conflicts: v"}, roots: "a", want: "a=1"},
		"unknown":                        {index: []string{"a 1"}, roots: "b", err: `unknown package "b" for amd64`},
		"virtual root":                   {index: []string{"a 1 Provides: v"}, roots: "v", err: "provided by a"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			u, err := NewUniverse("amd64", index(t, c.index...))
			if err != nil {
				t.Fatal(err)
			}
			all, err := u.Resolve(strings.Fields(c.roots))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range all {
				got = append(got, p.Name+"="+p.Version.String())
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzPackages(f *testing.F) {
	f.Add("Package: a\nVersion: 1\nSize: 1\nSHA256: " + strings.Repeat("0", 64) + "\nFilename: pool/a\nDepends: b | c (>= 1), d:any\nProvides: e (= 2)\n\n")
	f.Add("Package: a\n b\n\n\n: x\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParsePackages(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, p := range all {
			p.Architecture = "amd64"
		}
		u, err := NewUniverse("amd64", all)
		if err != nil {
			return
		}
		for _, p := range all {
			_, _ = u.Resolve([]string{p.Name}) // any answer, no panic
		}
	})
}
