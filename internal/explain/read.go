package explain

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	goyaml "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/jsonscan"
)

// Read returns the objects of a file, in JSON or YAML: documents, each of which is an object or a list of them. Documents that are empty are none.
func Read(data []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		body, err := sigsyaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if err := alone(doc); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if err := jsonscan.Check(body); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		value, err := fieldset.Decode(body)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if all, err = add(all, value); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// alone returns an error for a document in which something follows its first value, such as another one of JSON: who reads it leaves that out.
func alone(doc []byte) error {
	decoder := goyaml.NewDecoder(bytes.NewReader(doc))
	var value any
	err := decoder.Decode(&value)
	if err == nil {
		err = decoder.Decode(&value)
		if err == nil || !errors.Is(err, io.EOF) {
			return errors.New("something follows its first value: set values apart by lines of ---, or make a List of them (jq -s '{kind: \"List\", items: .}')")
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// add adds an object, or the items of a list.
func add(all []*unstructured.Unstructured, value any) ([]*unstructured.Unstructured, error) {
	if value == nil {
		return all, nil
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return append(all, &unstructured.Unstructured{Object: map[string]any{}}), nil // which is counted as no object
	}
	o := &unstructured.Unstructured{Object: fields}
	if !o.IsList() {
		return append(all, o), check(fields)
	}
	items, _ := fields["items"].([]any)
	for _, item := range items {
		var err error
		if all, err = add(all, item); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// check returns an error for what no API server takes, and of which nothing could be told.
func check(fields map[string]any) error {
	for _, name := range []string{"metadata", "spec"} {
		if value := fields[name]; value != nil {
			if _, ok := value.(map[string]any); !ok && fields["kind"] != nil {
				return fmt.Errorf("%s of a %v is no mapping", name, fields["kind"])
			}
		}
	}
	return nil
}
