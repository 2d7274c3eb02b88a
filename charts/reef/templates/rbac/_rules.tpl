{{/*
What the operator may do in the namespaces that it watches, verb by verb. A test compares this with what it asks for.
Secrets: it makes one per job (Ray's token), looks for it by its name, and removes it when its job is gone. Rights
cannot be limited to names that end in -ray-token: whoever holds its account can read and remove every Secret whose name
is known, which documents of jobs tell of some. It can neither list nor watch nor change them.
*/}}
{{- define "reef.rules" -}}
- apiGroups: [reef.dev] # delete: of finished jobs, after ttlSecondsAfterFinished
  resources: [rltrainingjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [reef.dev]
  resources: [rltrainingjobs/status]
  verbs: [patch]
- apiGroups: [""] # delete: a head whose training has failed and whose side cars go on
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [batch] # the head
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps] # the node pools
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""] # the resolved document
  resources: [configmaps]
  verbs: [get, create, patch, delete]
- apiGroups: [""] # the head's addresses
  resources: [services]
  verbs: [get, create, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, delete]
{{- if .Values.ingress.enabled }}
- apiGroups: [networking.k8s.io] # those of policy servers
  resources: [ingresses]
  verbs: [get, create, delete]
{{- end }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [coordination.k8s.io] # the one Lease by which it sees that its watches are alive
  resources: [leases]
  resourceNames: [{{ include "reef.fullname" . }}-canary]
  verbs: [list, watch]
{{- end }}

{{/* Where its Leases are: that of the leader, and the canary that it changes to see the change come by. */}}
{{- define "reef.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create] # which cannot be limited to names
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "reef.fullname" . }}-leader, {{ include "reef.fullname" . }}-canary]
  verbs: [get, patch]
{{- end }}

{{/* Role and RoleBinding in a namespace. Argument: dict root namespace name rules (name of a template). */}}
{{- define "reef.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "reef.labels" .root | nindent 4 }}
rules:
  {{- include .rules .root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "reef.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  {{- include "reef.subjects" .root | nindent 2 }}
{{- end }}

{{- define "reef.subjects" -}}
- kind: ServiceAccount
  name: {{ include "reef.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
