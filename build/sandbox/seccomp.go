package sandbox

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, seccomp(2). Arguments are 64 bits wide; on the little-endian
// machines we run on, the low half comes first.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

const (
	namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	refuse = unix.SECCOMP_RET_ERRNO | uint32(syscall.EPERM)
	absent = unix.SECCOMP_RET_ERRNO | uint32(syscall.ENOSYS)
)

// denied are the calls that no build needs and that have led out of sandboxes or act on the whole
// machine. Most would fail for want of capabilities anyway; the filter keeps their code out of reach.
var denied = append([]uint32{
	// mounts and roots
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSPICK, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL,
	// namespaces
	unix.SYS_UNSHARE, unix.SYS_SETNS,
	// other processes
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_MADVISE,
	// keyrings, which are not namespaced by content
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// code in the kernel, and the widest doors into it
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	// the machine
	unix.SYS_REBOOT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME,
	unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL, unix.SYS_LOOKUP_DCOOKIE,
	// files by handle, past every mount
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
}, deniedHere...)

// seccompFilter is a program in classic BPF. Calls of another architecture (32-bit programs) are refused.
func seccompFilter() []unix.SockFilter {
	f := []unix.SockFilter{
		load(offArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch},
		ret(refuse),
		load(offNr),
	}
	f = append(f, foreignABI...)
	for _, nr := range denied {
		f = append(f, on(nr, 1), ret(refuse))
	}
	// clone3 hides its flags behind a pointer; without it, libcs use clone.
	f = append(f, on(unix.SYS_CLONE3, 1), ret(absent))
	f = append(f, on(unix.SYS_CLONE, 4), load(offArgs),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: namespaceFlags}, ret(refuse), ret(unix.SECCOMP_RET_ALLOW))
	// Typing into the caller's terminal.
	f = append(f, on(unix.SYS_IOCTL, 5), load(offArgs+8),
		on(unix.TIOCSTI, 1), ret(refuse), on(unix.TIOCLINUX, 1), ret(refuse))
	f = append(f, load(offNr))
	// Sockets to the hypervisor know no network namespace.
	f = append(f, on(unix.SYS_SOCKET, 3), load(offArgs), on(unix.AF_VSOCK, 1), ret(refuse))
	return append(f, ret(unix.SECCOMP_RET_ALLOW))
}

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

// on runs the next n instructions only if the loaded word is v.
func on(v uint32, n uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: n, K: v}
}
