{{/* What the objects are called. */}}
{{- define "reef.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "reef.fullname" -}}
{{- $name := include "reef.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "reef.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "reef.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{/* Pods of jobs are labelled app.kubernetes.io/name=reef; the operator's own are told apart by name and component. */}}
{{- define "reef.selectorLabels" -}}
app.kubernetes.io/name: {{ include "reef.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "reef.labels" -}}
{{ include "reef.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: reef
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "reef.kubeVersion" -}}
{{ default .Capabilities.KubeVersion.Version .Values.kubeVersion }}
{{- end }}

{{/* An image: of `.` (an image of the values) and the chart's version. Argument: list image chart. */}}
{{- define "reef.image" -}}
{{- $image := index . 0 -}}
{{ $image.repository }}{{ with $image.digest }}@{{ . }}{{ else }}:{{ default (index $ 1).AppVersion $image.tag }}{{ end }}
{{- end }}

{{/* The namespaces that are watched, as a JSON list; empty: all of them. */}}
{{- define "reef.namespaces" -}}
{{- if .Values.watch.allNamespaces -}}
{{- if .Values.watch.namespaces -}}
{{ fail (printf "watch.namespaces is %v and watch.allNamespaces is true: set watch.allNamespaces=false for these namespaces alone, or leave them out" .Values.watch.namespaces) }}
{{- end -}}
[]
{{- else if and (has .Release.Namespace .Values.watch.namespaces) (gt (len .Values.watch.namespaces) 1) -}}
{{ fail (printf "watch.namespaces is %v and holds the release's own namespace %s: a job there could run with the operator's account and act in the others. Install the release in a namespace of its own, for example --namespace reef-system --create-namespace" .Values.watch.namespaces .Release.Namespace) }}
{{- else -}}
{{ default (list .Release.Namespace) .Values.watch.namespaces | toJson }}
{{- end -}}
{{- end }}
