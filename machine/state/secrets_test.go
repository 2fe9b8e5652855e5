package state_test

import (
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/machine/state"
)

func apiSpec() state.APICertificatesSpec {
	return state.APICertificatesSpec{
		Maintenance: true,
		AcceptedCAs: []byte("cas"),
		Server:      state.KeyPair{Crt: []byte("server crt"), Key: []byte("server key")},
	}
}

// What apid reads from the socket is what machined wrote.
func TestAPICertificatesOverTheWire(t *testing.T) {
	remote, err := protobuf.FromResource(state.NewAPICertificates(apiSpec()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := state.DecodeAPICertificates(remote)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(apiSpec(), *got.TypedSpec()); diff != "" {
		t.Error(diff)
	}
}

func TestTrustdCertificatesOverTheWire(t *testing.T) {
	want := state.TrustdCertificatesSpec{
		CA:          state.KeyPair{Crt: []byte("ca crt"), Key: []byte("ca key")},
		AcceptedCAs: []byte("cas"),
		Token:       []byte("token"),
		Server:      state.KeyPair{Crt: []byte("server crt"), Key: []byte("server key")},
	}
	remote, err := protobuf.FromResource(state.NewTrustdCertificates(want))
	if err != nil {
		t.Fatal(err)
	}
	got, err := state.DecodeTrustdCertificates(remote)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *got.TypedSpec()); diff != "" {
		t.Error(diff)
	}
}

// The form that is made for people has no keys.
func TestYAMLHidesKeys(t *testing.T) {
	remote, err := protobuf.FromResource(state.NewAPICertificates(apiSpec()))
	if err != nil {
		t.Fatal(err)
	}
	wire, err := remote.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	text := wire.Spec.YamlSpec
	if strings.Contains(text, "server key") || !strings.Contains(text, "server crt") {
		t.Errorf("yaml form: %s", text)
	}
}
