package build

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// goldenStep uses every field that is hashed.
func goldenStep() *Step {
	pinned := Blob{Sum([]byte("pinned")), 6}
	return &Step{
		Name: "golden", Argv: []string{"/bin/cc", "-o", "/out/a", "<a&b>"}, Env: map[string]string{"Z": "1", "A": "2"}, Dir: "/src",
		Host: "amd64", Target: "arm64",
		Mounts: []Mount{{"/usr", &Tree{Spec: []byte("usr")}}, {"/", &Tree{Spec: []byte("root")}}},
		Inputs: []Input{
			{Path: "/src/z", Fetch: &Fetch{Blob: pinned}},
			{Path: "/src/a", Bytes: []byte("text"), Executable: true},
		},
		Outputs: []string{"b", "a"},
	}
}

// A changed ActionID makes everybody build everything again. If that is meant, raise actionSchema
// or sandbox.Protocol and put the new ID here.
func TestGoldenActionID(t *testing.T) {
	a, err := newAction(goldenStep(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "c9069da05c1aa7db2e9813de005ccfe0fc7480d0550e5cf1ea05da57c612d387"
	if got := a.ID().String(); got != want {
		t.Errorf("ActionID is %s, want %s, of\n%s", got, want, a.Canonical())
	}
}

func TestActionIDIgnoresWhatIsNotHashed(t *testing.T) {
	id := func(s *Step) ActionID {
		a, err := newAction(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.ID()
	}
	same := goldenStep()
	same.Name, same.Timeout, same.Caches = "other", time.Hour, []Cache{{"c", "/c"}}
	same.Mounts[0], same.Mounts[1] = same.Mounts[1], same.Mounts[0]
	same.Inputs[0], same.Inputs[1] = same.Inputs[1], same.Inputs[0]
	if id(same) != id(goldenStep()) {
		t.Error("order or an unhashed field changed the ActionID")
	}
	for name, change := range map[string]func(*Step){
		"argv": func(s *Step) { s.Argv[1] = "-O" }, "env": func(s *Step) { s.Env["A"] = "3" }, "dir": func(s *Step) { s.Dir = "" },
		"target": func(s *Step) { s.Target = "amd64" }, "input": func(s *Step) { s.Inputs[1].Bytes = []byte("texT") },
		"mode": func(s *Step) { s.Inputs[1].Executable = false }, "path": func(s *Step) { s.Inputs[1].Path = "/b" },
		"tree": func(s *Step) { s.Mounts[0].Tree.Spec = []byte("x") }, "output": func(s *Step) { s.Outputs = s.Outputs[:1] },
	} {
		s := goldenStep()
		change(s)
		if id(s) == id(goldenStep()) {
			t.Errorf("another %s gives the same ActionID", name)
		}
	}
}

func TestRecordOfAnotherSchemaIsRefused(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	id := ActionID(Sum([]byte("x")))
	if err := s.saveRecord(record{Action: id}); err != nil {
		t.Fatal(err)
	}
	if _, found, err := s.loadRecord(id); !found || err != nil {
		t.Fatalf("found %v, %v", found, err)
	}
	text, err := json.Marshal(record{Schema: recordSchema + 1, Action: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.writeFile(s.entry("actions", Digest(id)), seal(text)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.loadRecord(id); err == nil || !strings.Contains(err.Error(), "its schema is 2") {
		t.Errorf("got %v", err)
	}
	// Damage, in contrast, is a miss.
	if err := os.WriteFile(s.entry("actions", Digest(id)), []byte(`{"schema":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, found, err := s.loadRecord(id); found || err != nil {
		t.Errorf("damaged record: found %v, %v", found, err)
	}
}

func FuzzParseDigest(f *testing.F) {
	f.Add(Sum(nil).String())
	f.Add(strings.ToUpper(Sum(nil).String()))
	f.Add("00")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDigest(s); err == nil && d.String() != s {
			t.Errorf("%q reads as %s", s, d)
		}
	})
}
