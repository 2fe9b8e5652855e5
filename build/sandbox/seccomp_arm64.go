package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// deniedHere are calls that this architecture has under another name.
var deniedHere = []uint32{unix.SYS_KEXEC_FILE_LOAD}

var foreignABI []unix.SockFilter
