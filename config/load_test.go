package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/config/generate"
)

func generated(t testing.TB) *generate.Bundle {
	t.Helper()
	secrets, err := generate.NewSecrets(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := generate.Generate(generate.Cluster{Name: "lab", Endpoint: "https://10.0.0.2:6443", Disk: "/dev/vda"}, secrets, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

func encode(t testing.TB, c *config.Config) string {
	t.Helper()
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLoadWhatWasGenerated(t *testing.T) {
	bundle := generated(t)
	for _, want := range []*config.Config{bundle.ControlPlane, bundle.Worker} {
		text := encode(t, want)
		got, err := config.Load([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text, encode(t, got)); diff != "" {
			t.Error(diff)
		}
		if len(got.Warnings()) > 0 {
			t.Errorf("warnings %q", got.Warnings())
		}
	}
	if strings.Contains(encode(t, bundle.Worker), "key: L") {
		t.Error("the worker has the CA's key")
	}
}

// Each fault is one line that says where it is.
func TestLoadRefuses(t *testing.T) {
	good := encode(t, generated(t).ControlPlane)
	line := func(text string) int { // of the first line that has text
		before, _, ok := strings.Cut(good, text)
		if !ok {
			t.Fatalf("no %q in\n%s", text, good)
		}
		return 1 + strings.Count(before, "\n")
	}
	tests := map[string]struct{ old, new, want string }{
		"misspelt":        {"  install:", "  instal:", fmt.Sprintf("line %d, column 3: unknown field machine.instal (did you mean machine.install?)", line("  install:"))},
		"unknown":         {"persist: true", "wizardry: true", "line 3, column 1: unknown field wizardry"},
		"other case":      {"clusterName:", "clustername:", "did you mean cluster.clusterName?"},
		"twice":           {"persist: true", "debug: true", "line 3, column 1: field debug is there twice"},
		"broken":          {"persist: true", "persist: [", "not YAML"},
		"bad indent":      {"persist: true", "persist: true\n   x: y", "line 4"},
		"not a boolean":   {"persist: true", "persist: often", "line 3, column 10: persist: want true or false"},
		"not a list":      {"certSANs: []", "certSANs: lab", "machine.certSANs: want a list"},
		"not fields":      {"  network: {}", "  network: no", "machine.network: want fields"},
		"alias":           {"persist: true", "persist: &a true", "cannot use YAML anchors"},
		"version":         {"v1alpha1", "v9", `version: want "v1alpha1", is "v9"`},
		"type":            {"type: controlplane", "type: boss", `machine.type: want controlplane or worker, is "boss"`},
		"hostname":        {"  network: {}", "  network: {hostname: -lab}", `machine.network.hostname: "-lab" is no host name`},
		"nameserver":      {"  network: {}", "  network: {nameservers: [1.1.1.1, one]}", `machine.network.nameservers[1]: "one" is no IP address`},
		"endpoint":        {"https://10.0.0.2:6443", "10.0.0.2", `cluster.controlPlane.endpoint: "10.0.0.2" is no URL`},
		"subnet":          {"10.244.0.0/16", "10.244.0.1/16", `cluster.network.podSubnets[0]: "10.244.0.1/16" is no subnet`},
		"disk":            {"/dev/vda", "vda", `machine.install.disk: "vda" is not below /dev`},
		"sysctl":          {"  network: {}", "  network: {}\n  sysctls: {../x: 1}", "machine.sysctls.../x: is no sysctl's name"},
		"not base64":      {"crt: ", "crt: '!' #", "not base64"},
		"a key of no CA":  {"key: ", "key: '' #", "machine.ca.key: is missing"},
		"second document": {"version: v1alpha1", "kind: SideroLinkConfig\n---\nversion: v1alpha1", "cannot use a document of kind SideroLinkConfig"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, tt.old, tt.new, 1)
			if bad == good {
				t.Fatalf("no %q in\n%s", tt.old, good)
			}
			c, err := config.Load([]byte(bad))
			if err == nil {
				t.Fatalf("accepted: %s", c)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want %q", err, tt.want)
			}
		})
	}
}

func TestLoadRefusesNothing(t *testing.T) {
	for _, text := range []string{"", "---\n", "# only a comment\n", "hello", "[]"} {
		if _, err := config.Load([]byte(text)); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}

func TestLoadEndsItsList(t *testing.T) {
	_, err := config.Load([]byte(strings.Repeat("nonsense: 1\n", 1000)))
	if err == nil || strings.Count(err.Error(), "\n") > 30 || !strings.HasSuffix(err.Error(), "and more") {
		t.Errorf("error %q", err)
	}
}

// What other generators of the field write is taken, and said to have no effect.
func TestLoadForeignFields(t *testing.T) {
	text := strings.Replace(encode(t, generated(t).ControlPlane), "\ncluster:\n",
		"\n  features: {kubePrism: {enabled: true}}\ncluster:\n  etcd: {ca: {crt: aaa, key: bbb}}\n", 1)
	text += "---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: first\n"
	c, err := config.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"machine.features has no effect yet", "cluster.etcd has no effect yet"}
	if diff := cmp.Diff(want, c.Warnings()); diff != "" {
		t.Error(diff)
	}
	if c.Machine.Network.Hostname != "first" {
		t.Errorf("host name %q", c.Machine.Network.Hostname)
	}
}

func TestPrintingShowsNoSecrets(t *testing.T) {
	c := generated(t).ControlPlane
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, value := range []any{c, *c, c.Machine, c.Cluster} {
			text := fmt.Sprintf(format, value)
			for _, hidden := range []string{c.Machine.Token.Reveal(), c.Cluster.Secret.Reveal(), "PRIVATE KEY"} {
				if strings.Contains(text, hidden) {
					t.Errorf("%s of %T prints %q", format, value, hidden)
				}
			}
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(encode(f, generated(f).Worker)))
	seeds, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, seed := range seeds {
		data, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Load(data)
		if err != nil {
			return
		}
		text, err := c.Encode()
		if err != nil {
			t.Fatalf("loaded, but cannot be written: %v", err)
		}
		if _, err := config.Load(text); err != nil {
			t.Errorf("written, but cannot be loaded: %v\n%s", err, text)
		}
	})
}
