package cmdline

import (
	"fmt"
	"strings"
	"testing"
)

func TestMerge(t *testing.T) {
	for _, test := range []struct {
		summary, base, extra, want string
	}{
		{"append", "a b=1", "c", "a b=1 c"},
		{"a value replaces the earlier one", "a=1 b", "a=2", "b a=2"},
		{"negation removes key and value", "a=1 a b", "-a", "b"},
		{"consoles add up", "console=tty0", "console=ttyS1", "console=tty0 console=ttyS1"},
		{"a negated console removes all", "console=tty0 console=ttyS0", "-console console=hvc0", "console=hvc0"},
	} {
		t.Run(test.summary, func(t *testing.T) {
			got, err := Merge(strings.Fields(test.base), strings.Fields(test.extra)...)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	for _, arg := range []string{"", "-", "a\nb", "two words"} {
		if got, err := Merge(nil, arg); err == nil {
			t.Errorf("Merge(%q) = %q, want an error", arg, got)
		}
	}
}

func TestKeep(t *testing.T) {
	for _, arg := range []string{"a.b=1", "-a.b", "a.b", `"a.b=x y"`} {
		if err := Keep("a.b", []string{"quiet", arg}); err == nil {
			t.Errorf("%s was let through", arg)
		}
	}
	if err := Keep("a.b", []string{"a.bc=1", "xa.b=1", "-a", "c=a.b"}); err != nil {
		t.Error(err)
	}
}

func ExampleMerge() {
	args, _ := Merge([]string{"quiet", "console=tty0"}, "-quiet", "panic=10")
	fmt.Println(strings.Join(args, " "))
	// Output: console=tty0 panic=10
}
