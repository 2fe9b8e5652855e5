//go:build linux

package machined

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/talos-factory/talos-factory/machine/machined/boot"
)

// table is the machine from top to bottom.
func (m *Machine) table() boot.Table {
	return boot.Table{
		{Name: "early", Tasks: []boot.Task{
			{Name: "mount kernel and memory file systems", Up: m.mountPseudo},
			{Name: "lay out cgroups", Up: m.setupCgroups},
			{Name: "set kernel parameters", Up: m.setSysctls},
			{Name: "set limits", Up: m.setLimits},
		}},
		{Name: "files", Tasks: []boot.Task{
			{Name: "mount changing files over /etc", Up: m.bindEtc},
			{Name: "set a first host name", Up: m.firstHostname},
		}},
		{Name: "resources", Tasks: []boot.Task{
			{Name: "make the resource store", Up: m.makeStore},
			{Name: "tell how far the machine was verified", Up: m.findSecurityState},
			{Name: "list the system extensions", Up: m.listExtensions},
			{Name: "make the maintenance certificate", Up: m.makeMaintenanceCertificate},
			{Name: "serve the API on its sockets", Up: m.serve},
		}},
		{Name: "network", Tasks: []boot.Task{
			{Name: "bring up loopback and ethernet links", Up: m.startNetwork},
		}},
		{Name: "api", Tasks: []boot.Task{
			{Name: "start apid", Up: m.startAPI, Down: m.stopAPI, Deadline: 20 * time.Second},
		}},
		{Name: "disk", Tasks: []boot.Task{
			{Name: "find the system disk", Up: m.findDisk},
			{Name: "read META", Up: m.readMeta},
			{Name: "enlarge EPHEMERAL to the disk", Up: m.growEphemeral},
			{Name: "format STATE if it is empty, mount it", Up: m.mountState, Down: m.unmountState},
			{Name: "format EPHEMERAL if it is empty, mount it", Up: m.mountEphemeral, Down: m.unmountEphemeral, Deadline: 30 * time.Second},
			{Name: "mount overlays", Up: m.mountOverlays, Down: m.unmountOverlays},
		}},
		{Name: "identity", Tasks: []boot.Task{
			{Name: "load the node's identity", Up: m.loadIdentity},
		}},
		{Name: "configuration", Tasks: []boot.Task{
			{Name: "find a configuration, or wait for one", Up: m.acquireConfig},
			{Name: "without a disk and told to: install, then reboot", Up: m.installSystem, Down: m.stopInstaller, Deadline: 45 * time.Second},
			{Name: "apply the configuration", Up: m.applyConfig},
		}},
		{Name: "services", Tasks: []boot.Task{
			{Name: "start containerd and what the machine's type asks for", Up: m.startServices, Down: m.stopServices, Deadline: 45 * time.Second},
			{Name: "wait for all services", Up: m.awaitServices},
		}},
	}
}

// printBoot shows the table to a person.
func printBoot(w io.Writer) error {
	t := newMachine(slog.New(slog.DiscardHandler)).table()

	fmt.Fprintln(w, "boot:")

	if err := t.Print(w, false); err != nil {
		return err
	}

	fmt.Fprintln(w, "\ninstall:")

	for i, step := range installSteps() {
		fmt.Fprintf(w, "%2d %s\n", i+1, step.name)
	}

	fmt.Fprintln(w, "\nshutdown and reboot:")

	if err := t.Print(w, true); err != nil {
		return err
	}

	_, err := fmt.Fprintln(w, "sync, then power off or restart")

	return err
}
