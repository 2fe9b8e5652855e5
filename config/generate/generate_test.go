package generate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/config/generate"
	"github.com/talos-factory/talos-factory/config/talosconfig"
)

func TestSecretsComeBack(t *testing.T) {
	secrets, err := generate.NewSecrets(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := secrets.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := generate.ParseSecrets(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(secrets, again); diff != "" {
		t.Error("secrets changed on their way through a file") // the difference would show them
	}
	if printed := fmt.Sprintf("%+v", *secrets); strings.Contains(printed, secrets.Tokens.Token.Reveal()) {
		t.Error("printing shows the token")
	}
}

func TestClient(t *testing.T) {
	secrets, err := generate.NewSecrets(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := generate.Generate(generate.Cluster{Name: "lab", Endpoint: "https://lab.example:6443"}, secrets, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := bundle.Client.Encode()
	if err != nil {
		t.Fatal(err)
	}
	client, err := talosconfig.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	other, err := talosconfig.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"lab": "lab-1"}, client.Merge(other)); diff != "" {
		t.Error(diff)
	}
	if _, err := client.Choose("lab-1"); err != nil {
		t.Error(err)
	}
	if client.Context != "lab-1" {
		t.Errorf("context %q", client.Context)
	}
}
