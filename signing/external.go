package signing

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/signer"
)

// defaultTimeout lets a person find the token and touch it.
const defaultTimeout = 2 * time.Minute

// externalKey is a key that another program holds. Nothing it says is believed: each signature is checked with the public
// key it named at first. It connects anew for each question, so there is nothing to close.
type externalKey struct {
	ctx     context.Context // crypto.Signer has none to pass
	socket  string
	timeout time.Duration
	public  crypto.PublicKey
	cert    *x509.Certificate
}

func (k *externalKey) Public() crypto.PublicKey       { return k.public }
func (k *externalKey) Certificate() *x509.Certificate { return k.cert }
func (k *externalKey) String() string                 { return Algorithm(k.public) + " key unix:" + k.socket }

func openExternal(ctx context.Context, socket string, opts Options) (*externalKey, error) {
	k := &externalKey{ctx: ctx, socket: socket, timeout: opts.Timeout}
	if k.timeout == 0 {
		k.timeout = defaultTimeout
	}
	if err := k.ask(k.describe); err != nil {
		return nil, fmt.Errorf("opening key unix:%s: %w", socket, err)
	}
	return k, nil
}

// describe asks for the public key and the certificate.
func (k *externalKey) describe(ctx context.Context, client signer.SignerServiceClient) error {
	answer, err := client.GetPublicKey(ctx, &emptypb.Empty{})
	if err != nil {
		return err
	}
	block, _ := pem.Decode(answer.GetPubKeyPem())
	if block == nil {
		return errors.New("cannot read the signer's public key: it is no PEM")
	}
	if k.public, err = x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		return fmt.Errorf("reading the signer's public key: %w", err)
	}
	if err := usable(k.public); err != nil {
		return err
	}
	certificate, err := client.GetCertificate(ctx, &emptypb.Empty{})
	switch {
	case status.Code(err) == codes.NotFound, status.Code(err) == codes.Unimplemented:
		return nil
	case err != nil:
		return err
	case len(certificate.GetCertPem()) == 0:
		return nil
	}
	if block, _ = pem.Decode(certificate.GetCertPem()); block == nil {
		return errors.New("cannot read the signer's certificate: it is no PEM")
	}
	if k.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return fmt.Errorf("reading the signer's certificate: %w", err)
	}
	if !same(k.public, k.cert) {
		return fmt.Errorf("cannot use the signer's certificate %q: it is another key's", k.cert.Subject)
	}
	return nil
}

// Sign asks the signer, and checks what it answers.
func (k *externalKey) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	request := &signer.SignRequest{Digest: digest}
	switch opts.HashFunc() {
	case crypto.SHA256:
		request.Hash = signer.Hash_HASH_SHA256
	case crypto.SHA384:
		request.Hash = signer.Hash_HASH_SHA384
	case crypto.SHA512:
		request.Hash = signer.Hash_HASH_SHA512
	default:
		return nil, fmt.Errorf("cannot sign a digest of %v: want SHA-256, SHA-384 or SHA-512", opts.HashFunc())
	}
	if len(digest) != opts.HashFunc().Size() {
		return nil, fmt.Errorf("cannot sign a digest of %d bytes: %v has %d", len(digest), opts.HashFunc(), opts.HashFunc().Size())
	}
	switch k.public.(type) {
	case *ecdsa.PublicKey:
		request.Scheme = signer.Scheme_SCHEME_ECDSA
	default:
		request.Scheme = signer.Scheme_SCHEME_RSA_PKCS1V15
		if _, ok := opts.(*rsa.PSSOptions); ok {
			request.Scheme = signer.Scheme_SCHEME_RSA_PSS
		}
	}
	var signature []byte
	err := k.ask(func(ctx context.Context, client signer.SignerServiceClient) error {
		answer, err := client.Sign(ctx, request)
		signature = answer.GetSignature()
		return err
	})
	if err == nil {
		err = check(k.public, request.Scheme, opts.HashFunc(), digest, signature)
	}
	if err != nil {
		return nil, fmt.Errorf("signing with key unix:%s: %w", k.socket, err)
	}
	return signature, nil
}

func check(public crypto.PublicKey, scheme signer.Scheme, hash crypto.Hash, digest, signature []byte) error {
	good := false
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		good = ecdsa.VerifyASN1(p, digest, signature)
	case *rsa.PublicKey:
		if scheme == signer.Scheme_SCHEME_RSA_PSS {
			good = rsa.VerifyPSS(p, hash, digest, signature, nil) == nil
		} else {
			good = rsa.VerifyPKCS1v15(p, hash, digest, signature) == nil
		}
	}
	if !good {
		return errors.New("cannot accept the signer's answer: it is no signature by its key")
	}
	return nil
}

func (k *externalKey) ask(question func(context.Context, signer.SignerServiceClient) error) error {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", k.socket)
	}
	conn, err := grpc.NewClient("passthrough:///signer", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(k.ctx, k.timeout)
	defer cancel()
	return question(ctx, signer.NewSignerServiceClient(conn))
}
