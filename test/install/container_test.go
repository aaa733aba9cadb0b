package install

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestArgumentsNameTheDirectoriesOfVolumes(t *testing.T) {
	c := corev1.Container{
		Args:         []string{"serve", "--certs=/certs", "--file=/certs/a,keep=6", "--other=/certs2/a", "--leader-elect"},
		VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/certs"}},
	}
	require.Equal(t, []string{"serve", "--certs=/dir", "--file=/dir/a,keep=6", "--other=/certs2/a", "--leader-elect"}, mounted(c, map[string]string{"v": "/dir"}))
	require.Equal(t, "--certs=/certs", c.Args[1], "the Pod stays as it is")
}

func TestEnvironmentIsThatOfTheContainer(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	from := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	env, err := environment(pod, corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "N", ValueFrom: from("metadata.namespace")}}})
	require.NoError(t, err)
	require.Equal(t, []string{"A=b", "N=ns"}, env)
	_, err = environment(pod, corev1.Container{Env: []corev1.EnvVar{{Name: "N", ValueFrom: from("status.podIP")}}})
	require.ErrorContains(t, err, "N has a source that is not known here")
}

func TestOnlyReadyPodsAreReached(t *testing.T) {
	pod := &corev1.Pod{
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "hooks", ContainerPort: 9443}}}}},
		Status: corev1.PodStatus{PodIP: "127.0.64.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, port := range []intstr.IntOrString{intstr.FromString("hooks"), intstr.FromInt32(9443)} {
		require.Equal(t, "127.0.64.1:9443", target(pod, port.String()))
	}
	require.Empty(t, target(pod, "metrics"))
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	require.Empty(t, target(pod, "hooks"))
}
