//go:build linux

package disk

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/talos-factory/talos-factory/format/extent"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

const (
	chunk = 1 << 20 // bytes moved at once
	// edge is how much of the start and the end of a partition is made zeros: signatures of file systems, RAIDs and
	// volume managers lie there, the furthest (VMFS) a little behind the first MiB.
	edge = 4 << 20
	// tableArea is what the layout leaves at either end of the disk for the table.
	tableArea = layout.MiB
)

// span is a range of bytes of the disk.
type span struct{ off, n int64 }

func (s span) end() int64 { return s.off + s.n }

// blanks are the ranges where zeros of the plan must be zeros on the disk, too: both ends of the disk and of each partition,
// and everything of a written partition up to its last byte, since file systems read there what they did not write
// (the free entries of a FAT). Elsewhere, in free clusters, old bytes do no harm.
func blanks(disk *extent.Plan, l layout.Layout) []span {
	extents := disk.Extents()
	areas := []span{{0, tableArea}, {l.Size - edge, edge}}
	for _, p := range l.Partitions {
		areas = append(areas, span{p.Start, min(edge, p.Size)}, span{p.Start + p.Size - min(edge, p.Size), min(edge, p.Size)})
		for i := len(extents) - 1; i >= 0 && p.Content != layout.XFS; i-- {
			if last := extents[i].Off + extents[i].Len; extents[i].Off >= p.Start && last <= p.Start+p.Size {
				areas = append(areas, span{p.Start, last - p.Start})
				break
			}
		}
	}
	var gaps []span
	for _, area := range merge(areas) {
		gaps = append(gaps, without(area, extents)...)
	}
	return gaps
}

// merge sorts ranges and joins those that touch.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	merged := spans[:1]
	for _, s := range spans[1:] {
		if last := &merged[len(merged)-1]; s.off <= last.end() {
			last.n = max(last.end(), s.end()) - last.off
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// without is what of an area no extent covers.
func without(area span, extents []extent.Extent) []span {
	var gaps []span
	at := area.off
	for _, e := range extents {
		if e.Off+e.Len <= at || e.Off >= area.end() {
			continue
		}
		if e.Off > at {
			gaps = append(gaps, span{at, e.Off - at})
		}
		at = max(at, e.Off+e.Len)
	}
	if at < area.end() {
		gaps = append(gaps, span{at, area.end() - at})
	}
	return gaps
}

// zero makes the whole disk zeros, a GiB at a time.
func (w *work) zero(ctx context.Context) error {
	const step = 1 << 30
	for off := int64(0); off < w.target.size; off += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.target.zero(off, min(step, w.target.size-off)); err != nil {
			return fmt.Errorf("making %s zeros: %w", w.Target, err)
		}
		w.say("      %d of %d MiB", min(off+step, w.target.size)>>20, w.target.size>>20)
	}
	return nil
}

// clear takes the old table away first: from here on the disk is empty, until the new table is written.
func (w *work) clear(context.Context) error {
	var n int64
	for _, gap := range append([]span{{0, tableArea}, {w.layout.Size - tableArea, tableArea}}, blanks(w.disk, w.layout)...) {
		if err := w.target.zero(gap.off, gap.n); err != nil {
			return fmt.Errorf("clearing %s: %w", w.Target, err)
		}
		n += gap.n
	}
	w.say("      %d MiB of zeros", n>>20)
	return w.sync()
}

func (w *work) sync() error {
	if err := w.target.file.Sync(); err != nil {
		return fmt.Errorf("writing to %s: %w", w.Target, err)
	}
	return nil
}

// ofTable says whether an extent belongs to the partition table or the boot code before it.
func (w *work) ofTable(e extent.Extent) bool {
	return e.Off < tableArea || e.Off >= w.layout.Size-tableArea
}

func (w *work) writeContent(ctx context.Context) error {
	if err := w.write(ctx, func(e extent.Extent) bool { return !w.ofTable(e) }); err != nil {
		return err
	}
	return w.sync()
}

// writeTable writes the copy at the end first, so that a power cut in between leaves a good one.
func (w *work) writeTable(ctx context.Context) error {
	for _, area := range []span{{w.layout.Size - tableArea, tableArea}, {0, tableArea}} {
		err := w.write(ctx, func(e extent.Extent) bool { return e.Off >= area.off && e.Off < area.end() })
		if err != nil {
			return err
		}
		if err := w.sync(); err != nil {
			return err
		}
	}
	return nil
}

// write copies the extents that are chosen.
func (w *work) write(ctx context.Context, chosen func(extent.Extent) bool) error {
	return w.each(ctx, chosen, func(off int64, want, _ []byte) error {
		if _, err := w.target.file.WriteAt(want, off); err != nil {
			return fmt.Errorf("writing to %s: %w", w.Target, err)
		}
		return nil
	})
}

// compare reads back all that was written and all that has to be zeros.
func (w *work) compare(ctx context.Context) error {
	if err := w.target.forget(); err != nil {
		return fmt.Errorf("reading %s back: %w", w.Target, err)
	}
	same := func(off int64, want, buf []byte) error {
		if n, err := w.target.file.ReadAt(buf[:len(want)], off); n < len(want) {
			return fmt.Errorf("reading %s back: %w", w.Target, err)
		}
		if !bytes.Equal(buf[:len(want)], want) {
			return fmt.Errorf("cannot trust %s: at byte %d (%s) it does not hold what was written", w.Target, off, w.where(off))
		}
		return nil
	}
	if err := w.each(ctx, func(extent.Extent) bool { return true }, same); err != nil {
		return err
	}
	zeros, buf := make([]byte, chunk), make([]byte, chunk)
	for _, gap := range blanks(w.disk, w.layout) {
		for at := int64(0); at < gap.n; at += chunk {
			if err := same(gap.off+at, zeros[:min(chunk, gap.n-at)], buf); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *work) where(off int64) string {
	for _, p := range w.layout.Partitions {
		if off >= p.Start && off < p.Start+p.Size {
			return p.Name
		}
	}
	return "partition table"
}

// each calls do for the chosen extents' bytes, a chunk at a time, with a second buffer of that size, and says how far it is.
func (w *work) each(ctx context.Context, chosen func(extent.Extent) bool, do func(off int64, want, buf []byte) error) error {
	var extents []extent.Extent
	var total, done, said int64
	for _, e := range w.disk.Extents() {
		if chosen(e) {
			extents = append(extents, e)
			total += e.Len
		}
	}
	reader := w.disk.NewReader(w.source)
	defer reader.Close()
	bytes, buf := make([]byte, chunk), make([]byte, chunk)
	for _, e := range extents {
		for at := int64(0); at < e.Len; at += chunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := bytes[:min(chunk, e.Len-at)]
			if n, err := reader.ReadAt(part, e.Off+at); n < len(part) {
				return fmt.Errorf("reading what this installer brings: %w", err)
			}
			if err := do(e.Off+at, part, buf); err != nil {
				return err
			}
			if done += int64(len(part)); done-said >= 32<<20 {
				said = done
				w.say("      %d of %d MiB", done>>20, total>>20)
			}
		}
	}
	return nil
}

func (w *work) reread(context.Context) error {
	if err := w.target.reread(); err != nil {
		return fmt.Errorf("having the kernel read the partition table of %s: %w", w.Target, err)
	}
	return nil
}

func (w *work) finish(context.Context) error {
	if err := w.target.finish(); err != nil {
		return fmt.Errorf("naming %s: %w", w.Target, err)
	}
	return nil
}
