// Package config finds the folders of the kit and reads its one configuration file.
//
// The file is config.json in the configuration folder: one JSON object with a section per tool ("runtime", "sim", …).
// Unknown sections and unknown fields are refused, so that a typing error cannot switch a setting off. Secrets never
// stand in it. Precedence: flag, then environment, then file, then default.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"condensate.dev/cnd/core/fault"
)

// ErrConfig is returned (wrapped) for every problem of configuration.
var ErrConfig = fault.New(fault.Config, "bad-configuration", "bad configuration")

// MaxFile is the largest configuration file accepted, in bytes.
const MaxFile = 1 << 20

// FileName is the name of the file in the configuration folder.
const FileName = "config.json"

// Places in the data folder that more than one tool reads.
const (
	StoreFolder = "store"       // the records
	HeadsFile   = "heads.jsonl" // signed heads
)

// Environment names of the folders.
const (
	EnvConfigDir = "CONDENSATE_CONFIG_DIR"
	EnvDataDir   = "CONDENSATE_DATA_DIR"
)

// sections are the tools that may have a section.
var sections = []string{"runtime", "proxy", "broker", "middleware", "hook", "replay", "sim"}

// Dirs are the two folders of the kit, as absolute paths. They need not exist.
type Dirs struct {
	Config string // settings and keys; default ~/.config/condensate
	Data   string // records and state; default ~/.local/share/condensate
}

// FindDirs returns the folders that the environment names, else the defaults below the home folder.
func FindDirs() (Dirs, error) {
	home, homeErr := os.UserHomeDir()
	pick := func(env string, below ...string) (string, error) {
		if dir := os.Getenv(env); dir != "" {
			return filepath.Abs(dir)
		}
		if homeErr != nil {
			return "", fmt.Errorf("no home folder and no %s: %w", env, ErrConfig)
		}
		return filepath.Join(append([]string{home}, below...)...), nil
	}
	config, err1 := pick(EnvConfigDir, ".config", "condensate")
	data, err2 := pick(EnvDataDir, ".local", "share", "condensate")
	return Dirs{Config: config, Data: data}, errors.Join(err1, err2)
}

// Load decodes the section of the file at path into the value that into points to, whose fields hold the defaults. A
// missing file, or one without that section, leaves the defaults; path "" means FileName in dirs.Config.
func Load(dirs Dirs, path, section string, into any) error {
	explicit := path != ""
	if !explicit {
		path = filepath.Join(dirs.Config, FileName)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !explicit {
		return nil
	}
	if err != nil {
		return fmt.Errorf("configuration: %w: %w", err, ErrConfig)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return fmt.Errorf("configuration %s: %w: %w", path, err, ErrConfig)
	}
	if len(text) > MaxFile {
		return fmt.Errorf("configuration %s: over %d bytes: %w", path, MaxFile, ErrConfig)
	}
	return decode(path, text, section, into)
}

func decode(path string, text []byte, section string, into any) error {
	var file map[string]json.RawMessage
	if err := strict(text, &file); err != nil {
		return fmt.Errorf("configuration %s: %s: %w", path, place(text, err), ErrConfig)
	}
	var problems []error
	for name := range file {
		if !slices.Contains(sections, name) {
			problems = append(problems, fmt.Errorf("configuration %s: section %q is not one of %s: %w",
				path, name, strings.Join(sections, ", "), ErrConfig))
		}
	}
	if body, ok := file[section]; ok {
		if err := strict(body, into); err != nil {
			problems = append(problems, fmt.Errorf("configuration %s: section %q: %w: %w", path, section, err, ErrConfig))
		}
	}
	return errors.Join(problems...)
}

func strict(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// place adds the line of a syntax error.
func place(text []byte, err error) string {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err.Error()
	}
	line := 1 + bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
	return fmt.Sprintf("line %d: %s", line, err)
}
