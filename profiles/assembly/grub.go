package assembly

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/fat"
)

//go:embed grub.cfg
var grubConfig string

// Cmdline is the arguments as one line.
func Cmdline(args []string) string { return strings.Join(args, " ") }

// slotFiles are what GRUB's slot has on the EFI partition, where a customization may change it: the commands that boot
// the slot, and the customization's archive.
func slotFiles(slot string, b Boot) ([]fat.File, error) {
	args, err := grubArguments(b.Cmdline)
	if err != nil {
		return nil, err
	}
	commands := fmt.Sprintf("linux /%s/vmlinuz %s\ninitrd /%s/initramfs.img", slot, args, slot)
	var files []fat.File
	if b.Extra != nil {
		path := "grub/" + slot + "/extra.img"
		commands += fmt.Sprintf(` "($disk,gpt1)/%s"`, path)
		files = append(files, fat.File{Path: path, Content: b.Extra})
	}
	return append(files, fat.File{Path: "grub/" + slot + "/boot.cfg", Content: extent.FromBytes([]byte(commands + "\n"))}), nil
}

// grubArguments writes kernel arguments as words of a GRUB command, each in single quotes. GRUB itself puts a word with a
// blank in it between double quotes when it hands it to the kernel, so those of a value are taken off; other quotes and backslashes
// it would escape, which the kernel does not understand.
func grubArguments(args []string) (string, error) {
	words := make([]string, len(args))
	for i, arg := range args {
		word := arg
		if strings.Contains(arg, " ") {
			word = strings.ReplaceAll(arg, `"`, "")
		}
		if strings.ContainsAny(word, "'\"\\\n") {
			return "", fmt.Errorf("cannot pass kernel argument %q through GRUB: it has a quote or a backslash", arg)
		}
		words[i] = "'" + word + "'"
	}
	return strings.Join(words, " "), nil
}
