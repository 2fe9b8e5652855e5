package installer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/installer"
)

func record() installer.Record {
	return installer.Record{
		Version: "v1.2.3", BuildID: "0123", Arch: "amd64", Platform: "metal", BIOS: true,
		Cmdline: []string{"console=ttyS0", `a="b c"`}, OSRelease: "ID=talos\nVERSION_ID=\"v1.2.3\"\n",
	}
}

func Example() {
	fmt.Println(installer.Path("amd64", installer.UKI))
	fmt.Println(installer.OSVersion("ID=talos\nVERSION_ID=v1.2.3\n"))
	// Output:
	// amd64/vmlinuz.efi
	// v1.2.3
}

func TestRecord(t *testing.T) {
	text, err := record().Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := installer.ParseRecord(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want := record()
	want.Schema = 1
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecordRefusals(t *testing.T) {
	good, err := record().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string]string{
		"cannot use schema 2":           strings.Replace(string(good), "schema: 1", "schema: 2", 1),
		"reading install.yaml":          string(good) + "unknown: 1\n",
		"cannot call this version":      strings.Replace(string(good), "version: v1.2.3", "version: v1.2.4", 1),
		"cannot use a record without a": strings.Replace(string(good), "arch: amd64", "arch: ../amd64", 1),
	} {
		if _, err := installer.ParseRecord([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	other := record()
	other.OSRelease = "ID=talos\n"
	if _, err := other.Encode(); err == nil {
		t.Error("wrote a record whose OS has no version")
	}
}

func FuzzParseRecord(f *testing.F) {
	good, err := record().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("schema: 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := installer.ParseRecord(text); err == nil {
			if _, err := r.Encode(); err != nil {
				t.Errorf("read and not written: %v", err)
			}
		}
	})
}
