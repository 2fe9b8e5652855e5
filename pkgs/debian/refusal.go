package debian

import (
	"errors"
	"net"
	"syscall"
)

// isRefusal reports whether the network said no at once, so that asking again is pointless.
func isRefusal(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH) ||
		(errors.As(err, &dns) && dns.IsNotFound)
}
