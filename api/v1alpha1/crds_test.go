package v1alpha1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// crd reads a CustomResourceDefinition as an API server does.
func crd(t *testing.T, file string) *apiextensions.CustomResourceDefinition {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	v1 := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(data, v1))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(v1)
	out := &apiextensions.CustomResourceDefinition{}
	require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, out, nil))
	out.Status.StoredVersions = []string{"v1alpha1"}
	return out
}

// An API server refuses a CRD whose rules it can't read, or that could take it too long.
func TestCRDsCanBeInstalled(t *testing.T) {
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 10)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			require.Empty(t, crdvalidation.ValidateCustomResourceDefinition(t.Context(), crd(t, file)))
		})
	}
}

// TestColumnsOfUpdates: kubectl shows which Cluster an update is of, by its label.
func TestColumnsOfUpdates(t *testing.T) {
	definition := crd(t, "../../config/crd/bases/capi-refit.dev_machineupdates.yaml")
	columns := definition.Spec.AdditionalPrinterColumns
	if len(columns) == 0 {
		columns = definition.Spec.Versions[0].AdditionalPrinterColumns
	}
	var names []string
	for _, c := range columns {
		if c.Priority == 0 {
			names = append(names, c.Name)
		}
	}
	require.Equal(t, []string{"Cluster", "Phase", "Reason", "Step", "Age", "Message"}, names)
	path := jsonpath.New("cluster")
	require.NoError(t, path.Parse("{"+columns[0].JSONPath+"}"))
	var shown strings.Builder
	require.NoError(t, path.Execute(&shown, map[string]any{"metadata": map[string]any{"labels": map[string]any{"cluster.x-k8s.io/cluster-name": "prod"}}}))
	require.Equal(t, "prod", shown.String())
}

// admit returns what an API server says about an object, or nothing.
func admit(t *testing.T, definition *apiextensions.CustomResourceDefinition, object string) field.ErrorList {
	doc, err := yaml.YAMLToJSON([]byte(object))
	require.NoError(t, err)
	var obj map[string]any
	require.NoError(t, json.Unmarshal(doc, &obj)) // integers stay integers, as rules want them
	props := definition.Spec.Validation
	if props == nil {
		props = definition.Spec.Versions[0].Schema
	}
	structural, err := structuralschema.NewStructural(props.OpenAPIV3Schema)
	require.NoError(t, err)
	defaulting.Default(obj, structural)
	validator, _, err := schemavalidation.NewSchemaValidator(props.OpenAPIV3Schema)
	require.NoError(t, err)
	if errs := schemavalidation.ValidateCustomResource(nil, obj, validator); len(errs) > 0 {
		return errs
	}
	if errs := listtype.ValidateListSetsAndMaps(nil, structural, obj); len(errs) > 0 {
		return errs
	}
	errs, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).
		Validate(t.Context(), nil, structural, obj, nil, celconfig.RuntimeCELCostBudget)
	return errs
}

func TestPolicyOfThePlatformIsValidated(t *testing.T) {
	definition := crd(t, "../../config/crd/bases/capi-refit.dev_clusterchangemanagementpolicies.yaml")
	require.Equal(t, apiextensions.ClusterScoped, definition.Spec.Scope)
	for name, test := range map[string]struct{ spec, want string }{
		"for all namespaces":            {`{strategy: Restrictive}`, ""},
		"for some of them":              {`{namespaceSelector: {matchLabels: {tier: prod}}, strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=DAILY}]}}`, ""},
		"how many at once":              {`{strategy: Permissive, budget: {maxConcurrent: 3, maxStartsPerWindow: 0}}`, ""},
		"Manual, with overrides":        {`{strategy: Manual, overrides: Allow}`, ""},
		"Manual, by default without":    {`{strategy: Manual}`, "strategy Manual needs overrides: Allow"},
		"Manual without":                {`{strategy: Manual, overrides: Forbid}`, "strategy Manual needs overrides: Allow"},
		"overrides that are unknown":    {`{strategy: Permissive, overrides: Perhaps}`, "spec.overrides"},
		"a budget for each window":      {`{strategy: Permissive, budget: {maxStartsPerWindow: 3}}`, "of budget only maxConcurrent"},
		"a budget of failures":          {`{strategy: Permissive, budget: {stopAfterFailures: 3}}`, "of budget only maxConcurrent"},
		"spacing":                       {`{strategy: Permissive, budget: {minSpacing: 3m}}`, "of budget only maxConcurrent"},
		"a rule as those of namespaces": {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=DAILY;COUNT=3}]}}`, "COUNT needs a startDate"},
		"a selector that is none":       {`{strategy: Permissive, namespaceSelector: prod}`, "spec.namespaceSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := admit(t, definition, "{apiVersion: capi-refit.dev/v1alpha1, kind: ClusterChangeManagementPolicy, metadata: {name: p}, spec: "+test.spec+"}")
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), test.want)
		})
	}
}

func TestPolicyIsValidated(t *testing.T) {
	definition := crd(t, "../../config/crd/bases/capi-refit.dev_changemanagementpolicies.yaml")
	permit := func(rest string) string {
		return `{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=DAILY, ` + rest + `}]}}`
	}
	exclude := func(rest string) string {
		return `{strategy: MaintenanceSchedule, maintenanceSchedule: {exclude: [{from: "2026-12-20", ` + rest + `}]}}`
	}
	for name, test := range map[string]struct{ spec, want string }{
		"a first Saturday":          {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=MONTHLY;BYDAY=1SA, startTime: "20:00", duration: 8h}]}}`, ""},
		"nothing but a strategy":    {`{strategy: Restrictive}`, ""},
		"no permit is not none":     {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: []}}`, ""},
		"a freeze of days":          {`{strategy: MaintenanceSchedule, maintenanceSchedule: {exclude: [{from: "2026-12-20", until: "2027-01-04"}]}}`, ""},
		"COUNT with a startDate":    {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=DAILY;COUNT=3, startDate: "2026-01-01"}]}}`, ""},
		"lower case":                {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: freq=daily}]}}`, ""},
		"no strategy":               {`{fit: Warn}`, "spec.strategy: Required value"},
		"an unknown strategy":       {`{strategy: Sometimes}`, "spec.strategy: Unsupported value"},
		"hourly":                    {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=HOURLY}]}}`, "recurrence"},
		"COUNT without a startDate": {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=DAILY;COUNT=3}]}}`, "COUNT needs a startDate"},
		"no time at all":            {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=DAILY, duration: 0s}]}}`, "longer than nothing"},
		"25 o'clock":                {`{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=DAILY, startTime: "25:00"}]}}`, "startTime"},
		"until before from":         {`{strategy: MaintenanceSchedule, maintenanceSchedule: {exclude: [{from: "2026-12-20", until: "2026-12-20"}]}}`, "so after from"},
		"neither days nor calendar": {`{strategy: MaintenanceSchedule, maintenanceSchedule: {exclude: [{reason: because}]}}`, "either days"},
		"a role that is none":       {`{strategy: Permissive, selector: {roles: [Master]}}`, "spec.selector.roles"},
		"Off without quotes":        {`{strategy: Permissive, fit: Off}`, "spec.fit"},
		"a negative budget":         {`{strategy: Permissive, budget: {maxConcurrent: -1}}`, "spec.budget.maxConcurrent"},
		"a permit for some changes": {permit(`changes: {maxDisruption: Restart, kinds: [Configuration, PatchVersion]}`), ""},
		"a freeze of some changes":  {exclude(`changes: {minDisruption: Reboot}`), ""},
		"a scope without a word":    {permit(`changes: {}`), "changes"},
		"a scope without kinds":     {permit(`changes: {kinds: []}`), "kinds"},
		"a kind twice":              {permit(`changes: {kinds: [Image, Image]}`), "Duplicate value"},
		"a kind that is none":       {exclude(`changes: {kinds: [Minor]}`), "kinds"},
		"a disruption that is none": {permit(`changes: {maxDisruption: restart}`), "maxDisruption"},
		"a deadline":                {`{strategy: Permissive, deadline: {after: 30d, warnBefore: 36h, atDeadline: Open, causes: [Waiting, EndOfLife]}}`, ""},
		"a deadline by its causes":  {`{strategy: Permissive, deadline: {causes: [Skew]}}`, ""},
		"days and hours":            {`{strategy: Permissive, deadline: {after: 1d12h30m}}`, ""},
		"a deadline without a unit": {`{strategy: Permissive, deadline: {after: "30"}}`, "after"},
		"what becomes of it":        {`{strategy: Permissive, deadline: {after: 30d, atDeadline: Off}}`, "atDeadline"},
		"Waiting without a time":    {`{strategy: Permissive, deadline: {causes: [Waiting]}}`, "after has to say"},
		"a time without Waiting":    {`{strategy: Permissive, deadline: {after: 30d, causes: [Skew]}}`, "does not have Waiting"},
		"a duration without a unit": {`{strategy: Permissive, jitter: "10"}`, "spec.jitter"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := admit(t, definition, "{apiVersion: capi-refit.dev/v1alpha1, kind: ChangeManagementPolicy, metadata: {name: p}, spec: "+test.spec+"}")
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), test.want)
		})
	}
}
