package pack

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/extension"
	"github.com/talos-factory/talos-factory/format/extent"
)

func packed(name string, image extent.Blob) Packed {
	return Packed{&Extension{Manifest: extension.Manifest{Version: extension.ManifestVersion, Metadata: extension.Metadata{Name: name, Version: "v1"}}}, image}
}

func TestCustomization(t *testing.T) {
	blobs := extent.Memory{}
	exts := []Packed{packed("first", blobs.Add([]byte("a squashfs"))), packed("second", blobs.Add([]byte("another squashfs")))}
	files := []File{
		{"/usr/local/etc/talos/meta.yaml", 0o444, extent.FromBytes([]byte("0xa: x\n"))},
		{"/usr/local/etc/talos/config.yaml", 0o400, extent.FromBytes([]byte("machine: {}\n"))},
	}
	plan, err := Customization(exts, files)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Customization(exts, files)
	if err != nil || again.String() != plan.String() {
		t.Errorf("planned twice it differs (%v):\n%s\n%s", err, plan, again)
	}
	var got strings.Builder
	list := ""
	r := cpio.Newc.Reader(plan.NewReader(blobs))
	for {
		rec, err := r.ReadRecord()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, rec.FileSize)
		if _, err := rec.ReadAt(text, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if strings.HasSuffix(rec.Name, "extensions.yaml") {
			list, text = string(text), nil
		}
		if rec.MTime != 0 || rec.UID != 0 || rec.GID != 0 {
			t.Errorf("%s: time %d, owner %d:%d", rec.Name, rec.MTime, rec.UID, rec.GID)
		}
		fmt.Fprintf(&got, "%o %s %q\n", rec.Mode, rec.Name, text)
	}
	want := `40755 customization ""
100444 customization/extensions.yaml ""
40755 customization/root ""
40755 customization/root/usr ""
40755 customization/root/usr/local ""
40755 customization/root/usr/local/etc ""
40755 customization/root/usr/local/etc/talos ""
100400 customization/root/usr/local/etc/talos/config.yaml "machine: {}\n"
100444 customization/root/usr/local/etc/talos/extensions.yaml ""
100444 customization/root/usr/local/etc/talos/meta.yaml "0xa: x\n"
100444 customization/00-first.sqsh "a squashfs"
100444 customization/01-second.sqsh "another squashfs"
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l, err := extension.ParseList([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Layers) != 2 || l.Layers[1].Image != "01-second.sqsh" || l.Layers[1].Size != exts[1].Image.Size {
		t.Errorf("the list is %+v", l)
	}
}

// TestCustomizationReadsNothing: squashfs files are nested, whatever their size.
func TestCustomizationReadsNothing(t *testing.T) {
	plan, err := Customization([]Packed{packed("big", extent.Blob{SHA256: [32]byte{1}, Size: 3 << 30})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Literals() > 4096 || plan.Size() < 3<<30 {
		t.Errorf("%d literal bytes in a plan of %d", plan.Literals(), plan.Size())
	}
}

func TestCustomizationRefuses(t *testing.T) {
	content := extent.FromBytes([]byte("x"))
	blob := extent.Blob{SHA256: [32]byte{1}, Size: 4096}
	for _, test := range []struct {
		summary string
		exts    []Packed
		files   []File
		want    string
	}{
		{"an extension twice", []Packed{packed("a", blob), packed("a", blob)}, nil, "cannot add extension a twice"},
		{"a file elsewhere", nil, []File{{"/etc/passwd", 0o444, content}}, "cannot lay /etc/passwd over the root"},
		{"a path that climbs", nil, []File{{"/usr/local/../../etc/passwd", 0o444, content}}, "want a clean path"},
		{"a file twice", nil, []File{{"/usr/local/x", 0o444, content}, {"/usr/local/x", 0o444, content}}, "cannot lay two files"},
		{"the list's place", nil, []File{{extension.ListPath, 0o444, content}}, "cannot lay two files"},
		{"below a file", nil, []File{{"/usr/local/x", 0o444, content}, {"/usr/local/x/y", 0o444, content}}, "/usr/local/x is a file"},
		{"world-writable", nil, []File{{"/usr/local/x", 0o666, content}}, "only its owner may write"},
	} {
		if _, err := Customization(test.exts, test.files); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %q", test.summary, err, test.want)
		}
	}
	if plan, err := Customization(nil, nil); plan != nil || err != nil {
		t.Errorf("of nothing: %v, %v", plan, err)
	}
}
