package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
)

// memoryFile is in the agent's own directory.
const memoryFile = "kubelet-flags.json"

func (k *Kind) memoryPath() string { return filepath.Join(k.host.Private, memoryFile) }

// loadMemory returns what has been displaced. What can't be read is not taken for nothing.
func (k *Kind) loadMemory() (displaced, error) {
	data, err := k.host.Disk.ReadFile(k.memoryPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var d displaced
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("%s can't be read: it is not JSON", k.memoryPath())
	}
	return d, nil
}

func (k *Kind) saveMemory(d displaced) error {
	if len(d) == 0 {
		return k.host.Disk.Remove(k.memoryPath())
	}
	now, err := k.loadMemory()
	if err == nil && maps.EqualFunc(now, d, func(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		return nil
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return k.host.Disk.WriteFile(k.memoryPath(), data)
}

// merged has what is in either; the older is the true one.
func merged(older, newer displaced) displaced {
	all := displaced{}
	maps.Copy(all, newer)
	maps.Copy(all, older)
	return all
}
