package compose

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"condensate.dev/cnd/client"
	"condensate.dev/cnd/core/fault"
)

// Address is the content of [client.AddressFile], which says where the runtime of a data folder listens. It is there
// while the runtime serves; a killed runtime leaves it behind, so an address is a hint until somebody answers there.
type Address struct {
	Addr string `json:"addr"` // host:port
	PID  int    `json:"pid"`
}

// ErrNoAddress is returned when no runtime has said where it listens.
var ErrNoAddress = fault.New(fault.Unavailable, "runtime-not-running", "no runtime serves this data folder")

// ReadAddress returns what the runtime of the data folder wrote.
func ReadAddress(data string) (Address, error) {
	var a Address
	text, err := os.ReadFile(filepath.Join(data, client.AddressFile))
	if errors.Is(err, fs.ErrNotExist) {
		return a, fmt.Errorf("%s: %w", data, ErrNoAddress)
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return Address{}, fmt.Errorf("address of the runtime: %w", err)
	}
	return a, nil
}

// Publish writes where this process listens.
func Publish(data, addr string) error {
	text, err := json.Marshal(Address{Addr: addr, PID: os.Getpid()})
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(data, client.AddressFile), append(text, '\n')); err != nil {
		return fmt.Errorf("publish address: %w", err)
	}
	return nil
}

// Withdraw removes what this process published; what another process wrote stays.
func Withdraw(data string) error {
	if a, err := ReadAddress(data); err != nil || a.PID != os.Getpid() {
		return nil
	}
	return os.Remove(filepath.Join(data, client.AddressFile))
}
