package profiles

// FileName is what the profile's artifact is called. Kinds of several files have one name each: see PXENames.
func (p Profile) FileName() string {
	switch p.Output.Kind {
	case Image:
		name := p.stem() + "." + p.Output.DiskFormat
		if p.Output.Compression != None && p.Output.Compression != "" {
			name += "." + p.Output.Compression
		}
		return name
	case ISO:
		return p.stem() + ".iso"
	case Installer:
		return "installer-" + p.Arch + p.secure() + ".tar"
	case Kernel:
		return "kernel-" + p.Arch
	case Initramfs:
		return "initramfs-" + p.Platform + "-" + p.Arch + ".xz" // the field's name, whatever it is compressed with
	case UKI:
		return p.stem() + "-uki.efi"
	case Cmdline:
		return "cmdline-" + p.Platform + "-" + p.Arch
	case PXE:
		return p.stem() + ".ipxe"
	}
	return ""
}

// stem is PLATFORM-ARCH, with what sets images of one platform apart.
func (p Profile) stem() string {
	name := p.Platform
	if p.Output.SectorSize == 4096 {
		name += "-4k"
	}
	return name + "-" + p.Arch + p.secure()
}

func (p Profile) secure() string {
	if p.SecureBoot {
		return "-secureboot"
	}
	return ""
}
