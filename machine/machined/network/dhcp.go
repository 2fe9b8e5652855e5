//go:build linux

package network

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

// Retries of a first lease: servers may start later than we do, so it never gives up.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// lease keeps an interface's lease until ctx ends. It reports each one, and nil when the last has run out or was taken back.
func lease(ctx context.Context, log *slog.Logger, link string, hostname func() string, report func(*LinkPlan)) {
	var current *nclient4.Lease

	retry, expires := firstRetry, time.Time{}

	for {
		next, err := exchange(ctx, link, hostname(), current)
		wait := retry

		switch {
		case ctx.Err() != nil:
			return

		case err == nil:
			plan, ok := planLease(next.ACK)
			if !ok {
				log.Warn("dhcp server gave no address", "link", link, "server", next.ACK.ServerIPAddr)

				break
			}

			if current == nil {
				log.Info("dhcp lease", "link", link, "address", plan.Address, "lifetime", plan.Lifetime, "server", next.ACK.ServerIdentifier())
			}

			current, retry, wait, expires = next, firstRetry, plan.RenewAfter, time.Now().Add(plan.Lifetime)
			if plan.Lifetime == 0 {
				expires = time.Time{}
			}

			report(&plan)

		case current != nil && (isNak(err) || !expires.IsZero() && time.Now().After(expires)):
			log.Warn("dhcp lease lost", "link", link, "error", err)

			current = nil

			report(nil)

		default:
			log.Warn("dhcp gave no lease", "link", link, "error", err, "retryIn", retry)

			retry = min(2*retry, lastRetry)
		}

		if !sleep(ctx, wait) {
			return
		}
	}
}

func isNak(err error) bool {
	var nak *nclient4.ErrNak

	return errors.As(err, &nak)
}

// exchange asks for a new lease, or to renew one. The packet socket is open only as long as that takes.
func exchange(ctx context.Context, link, hostname string, current *nclient4.Lease) (*nclient4.Lease, error) {
	client, err := nclient4.New(link, nclient4.WithTimeout(2*time.Second), nclient4.WithRetry(3))
	if err != nil {
		return nil, err
	}
	defer client.Close()

	modifiers := []dhcpv4.Modifier{dhcpv4.WithRequestedOptions(
		dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionDomainNameServer,
		dhcpv4.OptionDomainName, dhcpv4.OptionHostName, dhcpv4.OptionInterfaceMTU,
	)}
	if hostname != "" {
		modifiers = append(modifiers, dhcpv4.WithOption(dhcpv4.OptHostName(hostname)))
	}

	if current != nil {
		return client.Renew(ctx, current, modifiers...)
	}

	return client.Request(ctx, modifiers...)
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// LinkAddress returns the first global address, for banners.
func (s Snapshot) LinkAddress() (net.IP, bool) {
	for _, a := range s.Addresses {
		if a.Prefix.Addr().IsGlobalUnicast() && a.Link != "lo" {
			return a.Prefix.Addr().AsSlice(), true
		}
	}

	return nil, false
}
