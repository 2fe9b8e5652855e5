package signing_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/pem"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/signer"
	"github.com/talos-factory/talos-factory/signing"
)

// testSigner is a signer as somebody else would write one, with faults to choose.
type testSigner struct {
	signer.UnimplementedSignerServiceServer
	key    signing.Key
	public crypto.PublicKey
	cert   *x509.Certificate
	spoil  bool
	wait   time.Duration
}

func (s *testSigner) GetPublicKey(context.Context, *emptypb.Empty) (*signer.PublicKeyResponse, error) {
	der, err := x509.MarshalPKIXPublicKey(s.public)
	if err != nil {
		return nil, err
	}
	return &signer.PublicKeyResponse{PubKeyPem: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}, nil
}

func (s *testSigner) GetCertificate(context.Context, *emptypb.Empty) (*signer.CertificateResponse, error) {
	if s.cert == nil {
		return nil, status.Error(codes.NotFound, "this key has no certificate")
	}
	return &signer.CertificateResponse{CertPem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})}, nil
}

func (s *testSigner) Sign(_ context.Context, r *signer.SignRequest) (*signer.SignResponse, error) {
	time.Sleep(s.wait)
	hash := map[signer.Hash]crypto.Hash{signer.Hash_HASH_SHA256: crypto.SHA256, signer.Hash_HASH_SHA384: crypto.SHA384, signer.Hash_HASH_SHA512: crypto.SHA512}[r.Hash]
	var opts crypto.SignerOpts = hash
	if r.Scheme == signer.Scheme_SCHEME_RSA_PSS {
		opts = &rsa.PSSOptions{Hash: hash, SaltLength: rsa.PSSSaltLengthEqualsHash}
	}
	signature, err := s.key.Sign(rand.Reader, r.Digest, opts)
	if s.spoil {
		signature[len(signature)-1] ^= 1
	}
	return &signer.SignResponse{Signature: signature}, err
}

// serve serves s on a unix socket and returns the key's URI.
func serve(t *testing.T, s *testSigner) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	signer.RegisterSignerServiceServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "unix:" + socket
}

func TestExternal(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test"})
	digest := sha256.Sum256([]byte("digest"))
	for _, name := range []string{"uki-signing-key.pem", "pcr-signing-key.pem", "cosign.key"} {
		local := open(t, filepath.Join(dir, name), signing.Options{})
		remote := open(t, serve(t, &testSigner{key: local, public: local.Public(), cert: local.Certificate()}), signing.Options{})
		want, err := local.Sign(nil, digest[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Sign(nil, digest[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the signer signs with other bytes", name)
		}
		if (local.Certificate() == nil) != (remote.Certificate() == nil) {
			t.Errorf("%s: certificate %v, want %v", name, remote.Certificate(), local.Certificate())
		}
	}
	local := open(t, filepath.Join(dir, "pcr-signing-key.pem"), signing.Options{})
	remote := open(t, serve(t, &testSigner{key: local, public: local.Public()}), signing.Options{})
	long := sha512.Sum384([]byte("digest"))
	if _, err := remote.Sign(nil, long[:], &rsa.PSSOptions{Hash: crypto.SHA384}); err != nil {
		t.Error(err)
	}
	if _, err := remote.Sign(nil, long[:], crypto.SHA256); err == nil {
		t.Error("a digest of the wrong size is signed")
	}
}

func TestExternalMistrusted(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test"})
	key := open(t, filepath.Join(dir, "uki-signing-key.pem"), signing.Options{})
	other := open(t, filepath.Join(dir, "PK-key.pem"), signing.Options{})
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("digest"))
	for name, c := range map[string]struct {
		signer *testSigner
		want   string
	}{
		"another key's certificate": {&testSigner{key: key, public: key.Public(), cert: other.Certificate()}, "it is another key's"},
		"a weak key":                {&testSigner{key: key, public: small.Public()}, "at least 2048 bits"},
		"signs with another key":    {&testSigner{key: other, public: key.Public()}, "it is no signature by its key"},
		"spoilt signature":          {&testSigner{key: key, public: key.Public(), spoil: true}, "it is no signature by its key"},
		"never answers":             {&testSigner{key: key, public: key.Public(), wait: 3 * time.Second}, "DeadlineExceeded"},
	} {
		remote, err := signing.Open(t.Context(), serve(t, c.signer), signing.Options{Timeout: time.Second})
		if err == nil {
			_, err = remote.Sign(nil, digest[:], crypto.SHA256)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
