package config

import (
	"errors"

	"github.com/talos-factory/talos-factory/config/strict"
)

// Load reads a machine configuration and validates it. Every fault that it finds has its
// own line in the error.
func Load(data []byte) (*Config, error) {
	c, err := parse(data)
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

func parse(data []byte) (*Config, error) {
	documents, err := strict.Documents(data)
	if err != nil {
		return nil, err
	}
	var config *Config
	var extra hostnameDocument
	for _, document := range documents {
		switch kind := document.Kind(); {
		case kind == "HostnameConfig":
			err = document.Decode(&extra)
		case kind != "":
			err = document.Fault("cannot use a document of kind %s: not known here", kind)
		case config != nil:
			err = document.Fault("cannot use two machine configurations in one file")
		default:
			config = &Config{}
			err = document.Decode(config)
			config.warnings = document.Unused(config)
		}
		if err != nil {
			return nil, err
		}
	}
	if config == nil {
		return nil, errors.New("no machine configuration: the file is empty")
	}
	if extra.Hostname != "" {
		config.Machine.Network.Hostname = extra.Hostname
	}
	return config, nil
}

// hostnameDocument is the form in which newer generators give the host name.
type hostnameDocument struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Auto       string `yaml:"auto"`
	Hostname   string `yaml:"hostname"`
}
