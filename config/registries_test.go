package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/config"
)

const registries = `  registries:
    mirrors:
      10.0.2.2:5000:
        endpoints: ["http://10.0.2.2:5000"]
      "*":
        endpoints: ["https://mirror.example.org/prefix/v2"]
        overridePath: true
        skipFallback: true
    config:
      mirror.example.org:
        tls: {insecureSkipVerify: true}
        auth: {username: user, password: hidden}
      other.example.org:
        auth: {auth: dXNlcjpoaWRkZW4=}
`

func withRegistries(t *testing.T, text string) string {
	t.Helper()
	return strings.Replace(encode(t, generated(t).ControlPlane), "  install:\n", text+"  install:\n", 1)
}

func TestRegistries(t *testing.T) {
	c, err := config.Load([]byte(withRegistries(t, registries)))
	if err != nil {
		t.Fatal(err)
	}
	got := c.Machine.Registries
	want := map[string]config.Mirror{
		"10.0.2.2:5000": {Endpoints: []string{"http://10.0.2.2:5000"}},
		"*":             {Endpoints: []string{"https://mirror.example.org/prefix/v2"}, OverridePath: true, SkipFallback: true},
	}
	if diff := cmp.Diff(want, got.Mirrors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, host := range []string{"mirror.example.org", "other.example.org"} {
		name, password, err := got.Config[host].Auth.Account()
		if err != nil || name != "user" || password != "hidden" {
			t.Errorf("%s: got account %q %q, %v", host, name, password, err)
		}
	}
	if text := fmt.Sprintf("%+v %v", got, got); strings.Contains(text, "hidden") || strings.Contains(text, "dXNlcjpo") {
		t.Errorf("printing shows a password: %s", text)
	}
	again, err := config.Load([]byte(encode(t, c)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(encode(t, c), encode(t, again)); diff != "" {
		t.Errorf("written and read: (-want +got):\n%s", diff)
	}
}

func TestRegistriesRefusals(t *testing.T) {
	for want, change := range map[string][2]string{
		"endpoints[0]: \"10.0.2.2:5000\" is no URL":                                         {`"http://10.0.2.2:5000"`, `"10.0.2.2:5000"`},
		"machine.registries.mirrors.10.0.2.2:5000: has no endpoints":                        {`endpoints: ["http://10.0.2.2:5000"]`, `endpoints: []`},
		"machine.registries.mirrors.a/b: is no registry's name":                             {"10.0.2.2:5000:", "a/b:"},
		"auth.auth: is not base64":                                                          {"dXNlcjpoaWRkZW4=", "a.b"},
		"auth.auth: is not user:password":                                                   {"dXNlcjpoaWRkZW4=", "dXNlcg=="},
		"did you mean machine.registries.config.mirror.example.org.tls.insecureSkipVerify?": {"insecureSkipVerify", "insecureSkipVerfy"},
	} {
		_, err := config.Load([]byte(withRegistries(t, strings.Replace(registries, change[0], change[1], 1))))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
