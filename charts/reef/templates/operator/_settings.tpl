{{/* The operator's settings as environment variables. */}}
{{- define "reef.settings" -}}
REEF_OPERATOR_NAMESPACES: {{ include "reef.namespaces" . | fromJsonArray | join "," | quote }}
REEF_OPERATOR_TRAINER_IMAGE: {{ include "reef.image" (list .Values.trainerImage .Chart) | quote }}
REEF_OPERATOR_IMAGE_PULL_POLICY: {{ .Values.trainerImage.pullPolicy | quote }}
REEF_OPERATOR_CLUSTER_DOMAIN: {{ .Values.operator.clusterDomain | quote }}
REEF_OPERATOR_LINGER_SECONDS: {{ .Values.operator.lingerSeconds | quote }}
REEF_OPERATOR_FORBID: {{ .Values.templates.forbid | join "," | default "nothing" | quote }}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.metricsFrom }}
REEF_OPERATOR_METRICS_FROM: {{ .Values.networkPolicy.metricsFrom | toJson | quote }}
{{- end }}
{{- if .Values.ingress.enabled }}
{{- if not .Values.ingress.from }}
{{- fail "ingress.from is empty: name the pods of the Ingress controller, for example [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}], or set ingress.enabled=false" }}
{{- end }}
REEF_OPERATOR_INGRESS: {{ omit .Values.ingress "enabled" | toJson | quote }}
{{- end }}
{{- with .Values.operator.preRunningDeadlineSeconds }}
REEF_OPERATOR_PRE_RUNNING_DEADLINE_SECONDS: {{ . | quote }}
{{- end }}
REEF_OPERATOR_LEADER_ELECTION: {{ .Values.operator.leaderElection.enabled | quote }}
REEF_OPERATOR_NAME: {{ include "reef.fullname" . | quote }}
REEF_OPERATOR_LOG_LEVEL: {{ .Values.operator.logLevel | quote }}
{{- end }}
