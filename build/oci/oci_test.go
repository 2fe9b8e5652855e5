package oci_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/build/oci"
)

func TestExplain(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{&transport.Error{StatusCode: http.StatusUnauthorized}, "r: the registry refuses access (401): log in"},
		{&transport.Error{StatusCode: http.StatusForbidden}, "refuses access (403)"},
		{&transport.Error{StatusCode: http.StatusNotFound}, "no such artifact (404)"},
		{&transport.Error{StatusCode: http.StatusInternalServerError}, "the registry answers 500"},
		{fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), "dropped the connection"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, "dropped the connection"},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "cannot reach the registry"},
		{errors.New("odd"), "r: odd"},
	} {
		if got := oci.Explain("r", test.err); got == nil || !strings.Contains(got.Error(), test.want) {
			t.Errorf("Explain(%v) = %v, want %q", test.err, got, test.want)
		}
	}
	if got := oci.Explain("r", nil); got != nil {
		t.Errorf("Explain(nil) = %v", got)
	}
}

// TestLayer: a layer is the blob as it is, under its own digest.
func TestLayer(t *testing.T) {
	store, err := build.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	blob, err := store.Put(bytes.NewReader([]byte("content")))
	if err != nil {
		t.Fatal(err)
	}
	layer := oci.Layer{Blob: blob, Type: "application/x", Open: store.Open}
	body, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	digest, err2 := layer.Digest()
	if err != nil || err2 != nil || string(text) != "content" || digest.Hex != blob.Digest.String() {
		t.Errorf("content %q, digest %v, errors %v, %v", text, digest, err, err2)
	}
	if len(oci.Options(context.Background(), &http.Client{Transport: http.DefaultTransport})) != 3 {
		t.Error("a client's transport is not used")
	}
}
