// Package apischema reports what API servers refuse of refit's kinds, by the schemas and rules of their CustomResourceDefinitions.
package apischema

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/config/crd"
)

// Checker checks objects that are to be created together. The zero value is one that has seen none.
type Checker struct {
	seen map[string]bool
}

// Check returns why an API server would refuse an object, which is in JSON. A field that is not known is none of that: who decodes the object
// is told of it. Nor is a namespace that is missing: clients add one.
func (c *Checker) Check(doc []byte) error {
	var content map[string]any
	if err := json.Unmarshal(doc, &content); err != nil { // integers stay integers, as rules want them
		return err
	}
	object := unstructured.Unstructured{Object: content}
	if object.GroupVersionKind().GroupVersion() != refitv1.GroupVersion {
		return fmt.Errorf("apiVersion is %q and must be %q", object.GetAPIVersion(), refitv1.GroupVersion)
	}
	if wrong := validation.IsDNS1123Subdomain(object.GetName()); len(wrong) > 0 {
		return fmt.Errorf("metadata.name is %q: %s", object.GetName(), strings.Join(wrong, "; "))
	}
	key := fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
	if c.seen[key] {
		return errors.New("it is there more than once, and the last one would take the place of the others")
	}
	s, err := schemaOf(object.GetKind())
	if err != nil {
		return err
	}
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	c.seen[key] = true
	return s.validate(content).ToAggregate()
}

// schemas are those that were compiled, by kind.
var schemas sync.Map

// schemaOf returns the schema of a kind.
func schemaOf(kind string) (*schema, error) {
	if s, ok := schemas.Load(kind); ok {
		return s.(*schema), nil
	}
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := crd.Bases.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if definition.Spec.Names.Kind != kind {
			continue
		}
		s, err := newSchema(&definition)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		schemas.Store(kind, s)
		return s, nil
	}
	return nil, fmt.Errorf("%q is no kind of %s", kind, refitv1.GroupVersion)
}

// schema is that of a kind, as an API server compiles it.
type schema struct {
	structural *structuralschema.Structural
	validator  schemavalidation.SchemaValidator
	rules      *cel.Validator
}

func newSchema(definition *apiextensionsv1.CustomResourceDefinition) (*schema, error) {
	var props apiextensions.JSONSchemaProps
	from := definition.Spec.Versions[0].Schema.OpenAPIV3Schema // there is one version
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(from, &props, nil); err != nil {
		return nil, err
	}
	s := &schema{}
	var err error
	if s.structural, err = structuralschema.NewStructural(&props); err != nil {
		return nil, err
	}
	if s.validator, _, err = schemavalidation.NewSchemaValidator(&props); err != nil {
		return nil, err
	}
	s.rules = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	return s, nil
}

// validate goes on as long as there is no error: rules are for objects that have the shape.
func (s *schema) validate(object map[string]any) field.ErrorList {
	defaulting.Default(object, s.structural)
	if errs := schemavalidation.ValidateCustomResource(nil, object, s.validator); len(errs) > 0 {
		return errs
	}
	if errs := listtype.ValidateListSetsAndMaps(nil, s.structural, object); len(errs) > 0 {
		return errs
	}
	errs, _ := s.rules.Validate(context.Background(), nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return errs
}
