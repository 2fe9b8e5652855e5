package debian

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Archives are the two parts of the Debian archive we use. A suite path such as
// "debian-security/trixie-security" begins with one of them.
const (
	Main     = "debian"
	Security = "debian-security"
)

// Mirrors says where each archive is served: archive name -> base URLs, in order of preference.
type Mirrors map[string][]string

// ParseMirrors reads base URLs as a person gives them. A URL that ends in an archive's name serves that archive;
// any other serves both, each in a folder of its name.
func ParseMirrors(urls []string) (Mirrors, error) {
	m := Mirrors{}
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, fmt.Errorf("cannot use mirror %q: want http:// or https://", s)
		}
		base := strings.TrimRight(s, "/")
		switch path.Base(u.Path) {
		case Main, Security:
			m.add(path.Base(u.Path), base)
		default:
			m.add(Main, base+"/"+Main)
			m.add(Security, base+"/"+Security)
		}
	}
	return m, nil
}

func (m Mirrors) add(archive, base string) {
	if !slices.Contains(m[archive], base) {
		m[archive] = append(m[archive], base)
	}
}

// HostMirrors takes the archives' base URLs out of apt's sources, given its configuration folder (/etc/apt). The host's own suites do
// not matter, only that an entry is the Debian archive or its security part. Sources of other kinds are passed over.
func HostMirrors(apt fs.FS) (Mirrors, error) {
	m := Mirrors{}
	lists, err := fs.Glob(apt, "sources.list.d/*.list")
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{"sources.list"}, lists...) {
		data, err := fs.ReadFile(apt, name)
		if err != nil {
			continue // unreadable or missing: apt itself only warns
		}
		for _, line := range strings.Split(string(data), "\n") {
			m.addLine(line)
		}
	}
	sources, err := fs.Glob(apt, "sources.list.d/*.sources")
	if err != nil {
		return nil, err
	}
	for _, name := range sources {
		data, err := fs.ReadFile(apt, name)
		if err != nil {
			continue
		}
		m.addDeb822(string(data))
	}
	return m, nil
}

// addLine reads "deb [options] uri suite component...".
func (m Mirrors) addLine(line string) {
	line, _, _ = strings.Cut(line, "#")
	if start := strings.IndexByte(line, '['); start >= 0 {
		end := strings.IndexByte(line, ']')
		if end < start {
			return
		}
		line = line[:start] + line[end+1:]
	}
	f := strings.Fields(line)
	if len(f) >= 3 && f[0] == "deb" {
		m.addSource(f[1], f[2])
	}
}

// addDeb822 reads stanzas of "Types, URIs, Suites". Written by hand because these files have comments inside stanzas.
func (m Mirrors) addDeb822(text string) {
	for _, stanza := range strings.Split(text, "\n\n") {
		fields := map[string][]string{}
		key := ""
		for _, line := range strings.Split(stanza, "\n") {
			if strings.HasPrefix(line, "#") {
				continue
			}
			value := line
			if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
				key, value, _ = strings.Cut(line, ":")
				key = strings.ToLower(key)
			}
			fields[key] = append(fields[key], strings.Fields(value)...)
		}
		if !slices.Contains(fields["types"], "deb") || slices.Equal(fields["enabled"], []string{"no"}) {
			continue
		}
		for _, uri := range fields["uris"] {
			for _, suite := range fields["suites"] {
				m.addSource(uri, suite)
			}
		}
	}
}

func (m Mirrors) addSource(uri, suite string) {
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return
	}
	base := strings.TrimRight(uri, "/")
	switch last := path.Base(strings.TrimRight(u.Path, "/")); {
	case last == Security, strings.HasSuffix(suite, "-security"), strings.HasSuffix(suite, "/updates"):
		m.add(Security, base)
	case last == Main:
		m.add(Main, base)
	}
}
