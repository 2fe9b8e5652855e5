package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/talosconfig"
)

const (
	apiPort    = "50000"
	maxMessage = 32 << 20 // as in the public API
)

// target is the flags that say whom to ask.
type target struct {
	talosconfig  string
	context      string
	nodes        []string
	endpoints    []string
	insecure     bool
	fingerprints []string
}

func (t *target) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.talosconfig, "talosconfig", "", "client configuration `FILE` (default $TALOSCONFIG, then ~/.talos/config)")
	flags.StringVar(&t.context, "context", "", "context of the client configuration")
	flags.StringSliceVarP(&t.nodes, "nodes", "n", nil, "machines to ask about")
	flags.StringSliceVarP(&t.endpoints, "endpoints", "e", nil, "machines to connect to (default: the context's, else the nodes)")
	flags.BoolVarP(&t.insecure, "insecure", "i", false, "ask a machine in maintenance mode: no certificates on either side")
	flags.StringSliceVar(&t.fingerprints, "cert-fingerprint", nil, "with --insecure: the machine's certificate, as its console prints it")
}

// session is an open connection and whom it asks.
type session struct {
	*grpc.ClientConn
	nodes []string // empty: the machine at the other end
	name  string   // what to call that one
}

// open connects. Nothing is sent before the first call.
func (t *target) open() (*session, error) {
	if t.insecure {
		return t.openInsecure()
	}
	if len(t.fingerprints) > 0 {
		return nil, hint(errors.New("--cert-fingerprint is for --insecure"), "with a client configuration the machine's certificate is verified by its CA")
	}
	context, err := t.load()
	if err != nil {
		return nil, err
	}
	nodes := first(t.nodes, context.Nodes)
	endpoints := first(t.endpoints, context.Endpoints, nodes)
	if len(endpoints) == 0 {
		return nil, hint(errors.New("no machine to connect to"), "say which with --nodes ADDRESS, or once: talosctl config endpoint ADDRESS")
	}
	config, err := clientTLS(context)
	if err != nil {
		return nil, err
	}
	s, err := dial(endpoints, config)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(nodes, endpoints) || len(nodes) > 1 { // else it asks the other end itself
		s.nodes = nodes
	}
	return s, nil
}

func (t *target) openInsecure() (*session, error) {
	if len(t.nodes) != 1 {
		return nil, hint(errors.New("--insecure needs one machine"), "say which: talosctl --insecure --nodes ADDRESS ...")
	}
	return dial(t.nodes, &tls.Config{InsecureSkipVerify: true, VerifyConnection: t.checkFingerprint})
}

func (t *target) checkFingerprint(state tls.ConnectionState) error {
	got := pki.Fingerprint(state.PeerCertificates[0])
	if len(t.fingerprints) == 0 || slices.Contains(t.fingerprints, got) {
		return nil
	}
	return fmt.Errorf("the machine's fingerprint is %s", got)
}

func (t *target) path() (string, error) {
	if t.talosconfig != "" {
		return t.talosconfig, nil
	}
	return talosconfig.DefaultPath()
}

func (t *target) load() (*talosconfig.Context, error) {
	path, err := t.path()
	if err != nil {
		return nil, err
	}
	file, err := talosconfig.Open(path)
	if talosconfig.IsMissing(err) {
		return nil, hint(fmt.Errorf("no client configuration: %w", err),
			"name it with --talosconfig FILE, make one with `talosctl gen config`,\nor ask a machine that has no configuration yet with --insecure")
	}
	if err != nil {
		return nil, err
	}
	return file.Choose(t.context)
}

func clientTLS(context *talosconfig.Context) (*tls.Config, error) {
	pool, err := pki.Pool(context.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the talosconfig's ca: %w", err)
	}
	own, err := pki.Pair{Crt: context.Crt, Key: context.Key}.TLS()
	if err != nil {
		return nil, fmt.Errorf("reading the talosconfig's crt and key: %w", err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}, nil
}

// dial tries the endpoints in order.
func dial(endpoints []string, config *tls.Config) (*session, error) {
	builder := manual.NewBuilderWithScheme("talos")
	var addresses []resolver.Address
	for _, endpoint := range endpoints {
		host, port, err := net.SplitHostPort(endpoint)
		if err != nil {
			host, port = strings.Trim(endpoint, "[]"), apiPort
		}
		addresses = append(addresses, resolver.Address{Addr: net.JoinHostPort(host, port), ServerName: host})
	}
	builder.InitialState(resolver.State{Addresses: addresses})
	conn, err := grpc.NewClient("talos:///machine",
		grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", strings.Join(endpoints, ", "), err)
	}
	return &session{ClientConn: conn, name: endpoints[0]}, nil
}

// close ends the connection; whatever it carried has been answered or given up.
func (s *session) close() { _ = s.ClientConn.Close() }

// all is a call's context that asks all nodes at once.
func (s *session) all(ctx context.Context) context.Context {
	for _, node := range s.nodes {
		ctx = metadata.AppendToOutgoingContext(ctx, "nodes", node)
	}
	return ctx
}

// each calls f for one node after the other, for what cannot be asked of all at once.
func (s *session) each(ctx context.Context, f func(ctx context.Context, node string) error) error {
	if len(s.nodes) == 0 {
		return f(ctx, s.name)
	}
	for _, node := range s.nodes {
		if err := f(metadata.AppendToOutgoingContext(ctx, "node", node), node); err != nil {
			return err
		}
	}
	return nil
}

// one refuses several nodes, for what only makes sense of one.
func (s *session) one(ctx context.Context, what string) (context.Context, error) {
	switch len(s.nodes) {
	case 0:
		return ctx, nil
	case 1:
		return metadata.AppendToOutgoingContext(ctx, "node", s.nodes[0]), nil
	}
	return nil, hint(fmt.Errorf("cannot %s on %d machines at once", what, len(s.nodes)), "choose one with --nodes")
}

func first(lists ...[]string) []string {
	for _, list := range lists {
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// explainCall turns a call's error into words, with a hint where one is likely right.
func explainCall(err error) error {
	var call interface {
		error
		GRPCStatus() *status.Status
	}
	if !errors.As(err, &call) {
		return err
	}
	s := call.GRPCStatus()
	var authority x509.UnknownAuthorityError
	message := strings.TrimPrefix(s.Message(), "connection error: desc = ")
	message = strings.Replace(err.Error(), call.Error(), message, 1) // with what was said around it
	plain := errors.New(strings.Trim(message, `"`))
	switch text := s.Message(); {
	case errors.As(err, &authority) || strings.Contains(text, "signed by unknown authority"):
		return hint(errors.New("the machine's certificate is not signed by this cluster's CA"),
			"a machine without a configuration is asked with --insecure; else check --talosconfig and --context")
	case strings.Contains(text, "fingerprint"):
		return hint(plain, "it is not the machine you mean, or it booted again: look at its console")
	case strings.Contains(text, "certificate required") || strings.Contains(text, "bad certificate") || strings.Contains(text, "unknown certificate authority"):
		return hint(errors.New("the machine refused the client's certificate"),
			"it has a configuration: use the talosconfig that was made with it, without --insecure")
	case s.Code() == codes.Unavailable && (strings.Contains(text, "broken pipe") || strings.Contains(text, "connection reset") || strings.Contains(text, "EOF")):
		// With TLS 1.3 a refusal may come after the client has begun to write.
		return hint(errors.New("the machine closed the connection"),
			"one with a configuration wants the talosconfig that was made with it; one without is asked with --insecure")
	case s.Code() == codes.Unavailable:
		if _, reason, ok := strings.Cut(text, "Error while dialing: dial tcp "); ok {
			plain = errors.New("cannot connect to " + strings.Trim(reason, `"`))
		}
		return hint(plain, "is the machine up, and is its port %s reachable from here?", apiPort)
	case s.Code() == codes.Unauthenticated:
		return hint(plain, "it has a configuration: use the talosconfig that was made with it, without --insecure")
	case s.Code() == codes.Unimplemented:
		return hint(plain, "the machine's version does not have this call; see `talosctl version`")
	case s.Code() == codes.PermissionDenied:
		return hint(plain, "your certificate's roles do not allow it; in maintenance mode only version and apply-config are answered")
	}
	return plain
}
