//go:build linux

// Package disk installs the system on a disk: it plans the partitions with the same planners that make disk images, from the
// files that the installer's container holds, writes them, and reads all of it back.
//
// The partition table is written last, so a disk on which an installation was cut short does not look installed. It
// formats neither STATE nor EPHEMERAL (the machine does, at first boot), keeps nothing of what the disk held, changes no UEFI
// variable (firmware finds the boot loader at its fallback path) and does not upgrade.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// Install is an installation to be made.
type Install struct {
	Source    string // folder with the installer's files
	Target    string // a block device or a plain file
	Size      int64  // of a plain file that does not exist yet
	Arch      string
	Platform  string      // "" is what the installer was made for
	ExtraArgs []string    // further kernel arguments
	Meta      meta.Values // values of META
	Force     bool        // write over what the disk holds
	Zero      bool        // make the whole disk zeros first
}

// Step is one thing an installation does.
type Step struct {
	Name string
	do   func(*work, context.Context) error
}

// Steps lists what Run does, in order.
func (i Install) Steps() []Step {
	steps := []Step{
		{"read what this installer brings", (*work).read},
		{"open and measure " + i.Target, (*work).open},
		{"look at what it holds", (*work).inspect},
		{"hash what this installer brings", (*work).hash},
		{"plan the partitions", (*work).plan},
	}
	if i.Zero {
		steps = append(steps, Step{"make the whole disk zeros", (*work).zero})
	}
	return append(steps,
		Step{"clear the old partition table and old file systems", (*work).clear},
		Step{"write the partitions", (*work).writeContent},
		Step{"write the partition table", (*work).writeTable},
		Step{"read everything back and compare", (*work).compare},
		Step{"show the kernel the new partitions", (*work).reread},
		Step{"finish", (*work).finish},
	)
}

// work is an installation under way.
type work struct {
	Install
	out    io.Writer
	source *content
	target *target
	layout layout.Layout
	disk   *extent.Plan
}

// Run installs. It tells of each step on out, one line at a time. A plain file that it made is taken away again if it fails.
func (i Install) Run(ctx context.Context, out io.Writer) (err error) {
	w := &work{Install: i, out: out}
	defer func() { err = errors.Join(err, w.close()) }()
	steps := i.Steps()
	for n, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.say("%2d/%d %s", n+1, len(steps), step.Name)
		if err := step.do(w, ctx); err != nil {
			return err
		}
	}
	w.say("%s (build %s) is installed on %s", w.source.record.Version, w.source.record.BuildID, i.Target)
	return nil
}

// say prints a line; that nobody may read it is no reason to stop.
func (w *work) say(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }

func (w *work) close() error {
	var errs []error
	if w.target != nil {
		errs = append(errs, w.target.close())
	}
	if w.source != nil {
		errs = append(errs, w.source.dir.Close())
	}
	return errors.Join(errs...)
}

func (w *work) read(context.Context) (err error) {
	if w.source, err = openContent(w.Source, w.Arch); err != nil {
		return err
	}
	r := w.source.record
	w.say("      %s, build %s, %s for %s", r.Version, r.BuildID, r.Arch, r.Platform)
	return nil
}

func (w *work) open(context.Context) (err error) {
	if w.target, err = openTarget(w.Target, w.Size); err != nil {
		return err
	}
	w.say("      %d MiB in sectors of %d bytes", w.target.size>>20, w.target.sector)
	if w.layout, err = w.source.layout(w.target.sector).OfSize(w.target.size); err != nil {
		return fmt.Errorf("measuring %s: %w", w.Target, err)
	}
	w.layout.Size = w.target.size / int64(w.target.sector) * int64(w.target.sector) // the table's copy is in the very last sector
	return nil
}

func (w *work) inspect(context.Context) error {
	found, err := holds(w.target.file, w.target.size, w.target.sector)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", w.Target, err)
	}
	switch {
	case found == "":
		w.say("      nothing known")
	case w.Force:
		w.say("      %s, which will be lost", found)
	default:
		return fmt.Errorf("cannot install on %s: it holds %s\nhint: --force writes over it (in a machine configuration: machine.install.wipe: true)", w.Target, found)
	}
	return nil
}

func (w *work) hash(context.Context) error { return w.source.hash() }

func (w *work) plan(context.Context) error {
	changed, err := w.source.customize(w.Platform, w.ExtraArgs)
	if err != nil {
		return err
	}
	w.disk, err = w.source.plan(w.layout, w.target.sector, w.Meta, changed)
	if err != nil {
		return err
	}
	for _, p := range w.layout.Partitions {
		w.say("      %-9s %5d MiB at %5d MiB, %s", p.Name, p.Size>>20, p.Start>>20, p.Content)
	}
	w.say("      kernel arguments: %s", assembly.Cmdline(w.source.boot.Cmdline))
	return nil
}
