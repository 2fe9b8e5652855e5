//go:build linux

package kmsg

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHandler(t *testing.T) {
	var got bytes.Buffer

	log := slog.New(New(&got, "machined")).With("service", "apid")
	log.Info("started", "pid", 12, "reason", "on boot")
	log.Error("two\nlines")
	log.Debug("not shown")

	want := "<6>machined: started service=apid pid=12 reason=\"on boot\"\n<3>machined: two\n<3>lines service=apid\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSplitCutsLongLines(t *testing.T) {
	got := split(strings.Repeat("x", 2*maxLine+1))
	if len(got) != 3 || len(got[0]) != maxLine || len(got[2]) != 1 {
		t.Errorf("got %d records", len(got))
	}
}

func TestParse(t *testing.T) {
	got, err := Parse("6,339,5140900,-;NET: Registered PF_INET\n SUBSYSTEM=net\n")
	if err != nil {
		t.Fatal(err)
	}

	want := Message{Facility: 0, Priority: 6, Sequence: 339, Since: 5140900 * time.Microsecond, Text: "NET: Registered PF_INET"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	line := got.Format(time.Unix(0, 0))
	if want := "kern:    info: [1970-01-01T00:00:05.1409Z]: NET: Registered PF_INET\n"; line != want {
		t.Errorf("got %q, want %q", line, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("6,339,5140900,-;text\n")
	f.Add("30,1,2,-,caller=T1;a;b")
	f.Add(";")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := Parse(s)
		if err == nil {
			_ = m.Format(time.Unix(0, 0))
		}
	})
}

func TestReadEndsAtTheEnd(t *testing.T) {
	n := 0
	stop := errors.New("stop")
	err := Read(t.Context(), false, false, func(Message) error {
		if n++; n == 5 {
			return stop
		}

		return nil
	})
	if err != nil && !errors.Is(err, stop) {
		t.Skipf("the kernel log is not readable here: %v", err)
	}
}
