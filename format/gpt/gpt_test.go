package gpt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	diskfs "github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

const mib = 1 << 20

// metal is the product's own layout as a table.
func metal(sectorSize int) *gpt.Table {
	l := disk.Metal()
	t := &gpt.Table{DiskGUID: l.GUID, DiskSize: l.Size, SectorSize: sectorSize}
	for _, p := range l.Partitions {
		t.Partitions = append(t.Partitions, gpt.Partition{
			Name: p.Name, Type: p.Type, GUID: p.GUID, Start: p.Start, Size: p.Size, Attributes: p.Attributes})
	}
	return t
}

func Example() {
	table := gpt.Table{
		DiskGUID: "10077069-866F-84FE-8217-DE73E2140423", DiskSize: 64 * mib, SectorSize: 512,
		Partitions: []gpt.Partition{{
			Name: "DATA", Type: "0FC63DAF-8483-4772-8E79-3D69D8477DE4", GUID: "C3556047-0E64-8028-98E4-B0C125789C63",
			Start: gpt.Align, Size: 8 * mib}},
	}
	plan, err := table.Plan()
	if err != nil {
		panic(err)
	}
	read, err := gpt.Read(plan.NewReader(nil), plan.Size(), 512)
	if err != nil {
		panic(err)
	}
	fmt.Print(plan)
	fmt.Println(read.Partitions[0].Name, read.Partitions[0].Size/mib, "MiB")
	// Output:
	//          446         66 literal
	//          512        512 literal
	//         1024      16384 literal
	//     67091968      16384 literal
	//     67108352        512 literal
	//     67108864 end
	// DATA 8 MiB
}

func TestReadBack(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		want := metal(sector)
		plan, err := want.Plan()
		if err != nil {
			t.Fatal(err)
		}
		got, err := gpt.Read(plan.NewReader(nil), plan.Size(), sector)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(gpt.Table{})); diff != "" {
			t.Errorf("sectors of %d (-want +got):\n%s", sector, diff)
		}
		again, _ := metal(sector).Plan()
		if diff := cmp.Diff(plan.Extents(), again.Extents()); diff != "" {
			t.Errorf("planned twice:\n%s", diff)
		}
		if n := plan.Literals(); n > 64<<10 {
			t.Errorf("plan holds %d literal bytes", n)
		}
	}
}

// go-diskfs reads what its writer made through our recorder.
func TestLibraryReads(t *testing.T) {
	plan, err := metal(512).Plan()
	if err != nil {
		t.Fatal(err)
	}
	name := sparse(t, plan)
	b, err := file.OpenFromPath(name, true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	table, err := diskfs.Read(b, 512, 512)
	if err != nil {
		t.Fatal(err)
	}
	if !table.ProtectiveMBR || len(table.Partitions) < 6 || table.Partitions[5].Name != "EPHEMERAL" {
		t.Errorf("got %+v", table)
	}
}

func TestBootCodeFits(t *testing.T) {
	plan, err := metal(512).Plan()
	if err != nil {
		t.Fatal(err)
	}
	boot := bytes.Repeat([]byte{0x90}, 440)
	if err := plan.PutBytes(0, boot); err != nil {
		t.Error(err)
	}
	if err := plan.PutBytes(440, make([]byte, 7)); !errors.Is(err, extent.ErrOverlap) {
		t.Errorf("boot code over the MBR's entries: got %v", err)
	}
}

func TestDamage(t *testing.T) {
	plan, _ := metal(512).Plan()
	good, err := io.ReadAll(io.NewSectionReader(plan.NewReader(nil), 0, mib))
	if err != nil {
		t.Fatal(err)
	}
	tail := func(b []byte) []byte { // only the first and last MiB of the disk matter
		_, err := plan.NewReader(nil).ReadAt(b, plan.Size()-int64(len(b)))
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		return b
	}(make([]byte, mib))
	for name, at := range map[string]int{"signature": 512, "header": 512 + 40, "entry": 1024 + 33, "my lba": 512 + 24} {
		head := bytes.Clone(good)
		head[at] ^= 1
		d := ends{head, tail, plan.Size()}
		got, err := gpt.Read(d, plan.Size(), 512)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !got.FromBackup || len(got.Partitions) != 6 {
			t.Errorf("%s: got %+v, want the backup", name, got)
		}
		// A table read from the backup is written again even if nothing grows.
		_, writes, err := got.GrowLast(plan.Size())
		if err != nil || len(writes) != 5 {
			t.Errorf("%s: repair: %d writes, %v", name, len(writes), err)
		}
		bad := bytes.Clone(tail)
		bad[mib-512] ^= 1
		if _, err := gpt.Read(ends{head, bad, plan.Size()}, plan.Size(), 512); !errors.Is(err, gpt.ErrNoTable) {
			t.Errorf("%s: got %v, want ErrNoTable", name, err)
		}
	}
}

func TestGrowLast(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		old := metal(sector)
		plan, err := old.Plan()
		if err != nil {
			t.Fatal(err)
		}
		read, err := gpt.Read(plan.NewReader(nil), plan.Size(), sector)
		if err != nil {
			t.Fatal(err)
		}
		const size = 10<<30 + 12345 // not even whole sectors
		grown, writes, err := read.GrowLast(size)
		if err != nil {
			t.Fatal(err)
		}
		last := grown.Partitions[5]
		if last.End() < size-3*mib || last.Start != old.Partitions[5].Start || last.End()%mib != 0 {
			t.Errorf("grew to %+v", last)
		}
		if writes[0].Off != 446 || writes[1].Off < size/2 || writes[len(writes)-1].Off != int64(sector) {
			t.Errorf("want the MBR, the backup, and the primary header last; got %v %v", writes[0].Off, writes[1].Off)
		}
		bigger := extent.New(size)
		for _, w := range writes {
			bigger.PutBytes(w.Off, w.Literal)
		}
		if err := bigger.Err(); err != nil {
			t.Fatal(err)
		}
		got, err := gpt.Read(bigger.NewReader(nil), size, sector)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(grown, got, cmpopts.IgnoreUnexported(gpt.Table{})); diff != "" {
			t.Errorf("written and read (-want +got):\n%s", diff)
		}
		if _, writes, err := got.GrowLast(size); err != nil || len(writes) != 0 {
			t.Errorf("growing again: %d writes, %v; want none", len(writes), err)
		}
		if _, _, err := got.GrowLast(1 << 30); err == nil {
			t.Error("shrank below the partitions")
		}
	}
}

func TestHugeDisk(t *testing.T) {
	table := metal(512)
	table.DiskSize = 16 << 40
	plan, err := table.Plan()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	plan.NewReader(nil).ReadAt(b, 446+12)
	if got := binary.LittleEndian.Uint32(b); got != 0xFFFFFFFF {
		t.Errorf("protective MBR says %#x sectors", got)
	}
}

func TestRefusals(t *testing.T) {
	for want, change := range map[string]func(*gpt.Table){
		"sectors of 520":             func(t *gpt.Table) { t.SectorSize = 520 },
		"disk of 1024":               func(t *gpt.Table) { t.DiskSize = 1024 },
		"disk: cannot":               func(t *gpt.Table) { t.DiskGUID = "" },
		"(EFI): cannot read GUID":    func(t *gpt.Table) { t.Partitions[0].GUID = "12345678-1234-1234-1234-12345678901z" },
		"37 characters":              func(t *gpt.Table) { t.Partitions[0].Name = strings.Repeat("x", 37) },
		"whole sectors":              func(t *gpt.Table) { t.Partitions[0].Size++ },
		"lie from":                   func(t *gpt.Table) { t.Partitions[5].Size += mib },
		"overlaps partition 1 (EFI)": func(t *gpt.Table) { t.Partitions[1].Start -= mib },
		"twice":                      func(t *gpt.Table) { t.Partitions[1].GUID = t.Partitions[0].GUID },
	} {
		table := metal(512)
		change(table)
		if _, err := table.Plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	table := gpt.Table{DiskGUID: disk.Metal().GUID, DiskSize: 2 * mib, SectorSize: 512, Partitions: []gpt.Partition{{
		Name: "X", Type: disk.TypeLinux, GUID: disk.Metal().GUID, Start: mib, Size: 512}}}
	plan, err := table.Plan()
	if err != nil {
		f.Fatal(err)
	}
	whole, _ := io.ReadAll(plan.NewReader(nil))
	f.Add(whole[:34*512], whole[len(whole)-33*512:])
	f.Add(make([]byte, 34*512), whole[len(whole)-33*512:])
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		d := ends{head, tail, 2 * mib}
		table, err := gpt.Read(d, d.size, 512)
		if err != nil {
			return
		}
		_, writes, err := table.GrowLast(4 * mib)
		if err != nil {
			return
		}
		for _, w := range writes {
			if w.Off < 446 || w.Off+w.Len > 4*mib {
				t.Errorf("write of %d at %d", w.Len, w.Off)
			}
		}
	})
}

// ends is a disk of which only the first and last bytes are not zeros.
type ends struct {
	head, tail []byte
	size       int64
}

func (e ends) ReadAt(b []byte, off int64) (int, error) {
	p := extent.New(e.size)
	if int64(len(e.head)+len(e.tail)) <= e.size {
		p.PutBytes(0, e.head)
		p.PutBytes(e.size-int64(len(e.tail)), e.tail)
	}
	return p.NewReader(nil).ReadAt(b, off)
}
