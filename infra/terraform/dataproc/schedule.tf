# Starts the job again and again, and tells people when that fails or stops. All of it waits for `request`.

locals {
  scheduled = var.request == null ? 0 : 1
  job       = var.request == null ? null : jsondecode(var.request).job.pyspark_job
  channels  = [for channel in google_monitoring_notification_channel.people : channel.name]
  clusters  = "resource.type = \"cloud_dataproc_cluster\" AND resource.labels.cluster_name = starts_with(\"${local.workflow}\")"
}

resource "google_service_account" "schedule" {
  count        = local.scheduled
  project      = var.project
  account_id   = "lakestart-${local.short}"
  display_name = "Schedule of lakeingest ${var.name}"
}

resource "google_project_iam_member" "schedule" {
  count   = local.scheduled
  project = var.project
  role    = "roles/dataproc.editor"
  member  = "serviceAccount:${google_service_account.schedule[0].email}"
}

resource "google_service_account_iam_member" "schedule" {
  count              = local.scheduled
  service_account_id = google_service_account.job.name
  role               = "roles/iam.serviceAccountUser"
  member             = "serviceAccount:${google_service_account.schedule[0].email}"
}

resource "google_dataproc_workflow_template" "run" {
  count       = local.scheduled
  project     = var.project
  location    = var.region
  name        = local.workflow
  dag_timeout = "${var.max_minutes * 60}s"

  placement {
    managed_cluster {
      cluster_name = local.workflow

      config {
        gce_cluster_config {
          internal_ip_only       = true
          subnetwork             = var.subnetwork
          service_account        = google_service_account.job.email
          service_account_scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        }

        software_config {
          image_version       = var.image
          optional_components = ["ICEBERG"]
        }

        master_config {
          num_instances = 1
          machine_type  = var.machine_type
        }

        worker_config {
          num_instances = var.workers
          machine_type  = var.machine_type
        }
      }
    }
  }

  jobs {
    step_id = "run"
    labels  = { lakeingest = lower(var.name) }

    pyspark_job {
      main_python_file_uri = local.job.main_python_file_uri
      args                 = local.job.args
      archive_uris         = local.job.archive_uris
      # Each job of a workflow would have the same token.
      properties = { for key, value in local.job.properties : key => value if !strcontains(key, "LAKEINGEST_JOB") }
    }
  }
}

resource "google_cloud_scheduler_job" "start" {
  count            = local.scheduled
  project          = var.project
  region           = var.region
  name             = local.workflow
  description      = "Starts lakeingest on Dataproc. A run beside a running one ends with exit code 75."
  schedule         = var.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "180s"

  retry_config {
    retry_count          = 3
    min_backoff_duration = "30s"
  }

  http_target {
    uri         = "https://dataproc.googleapis.com/v1/projects/${var.project}/regions/${var.region}/workflowTemplates/${local.workflow}:instantiate"
    http_method = "POST"
    headers     = { "Content-Type" = "application/json" }
    body        = base64encode("{}")

    oauth_token {
      service_account_email = google_service_account.schedule[0].email
      scope                 = "https://www.googleapis.com/auth/cloud-platform"
    }
  }

  depends_on = [google_dataproc_workflow_template.run]
}

resource "google_monitoring_notification_channel" "people" {
  count        = local.scheduled
  project      = var.project
  display_name = "lakeingest ${var.name}"
  type         = "email"
  labels       = { email_address = var.email }

  lifecycle {
    precondition {
      condition     = var.email != null
      error_message = "A schedule needs an email: nobody would be told that jobs fail."
    }
  }
}

resource "google_monitoring_alert_policy" "jobs" {
  count                 = local.scheduled
  project               = var.project
  display_name          = "lakeingest ${var.name}"
  combiner              = "OR"
  notification_channels = local.channels

  conditions {
    display_name = "A job has failed"

    condition_threshold {
      filter          = "${local.clusters} AND metric.type = \"dataproc.googleapis.com/cluster/job/failed_count\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"

      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_SUM"
        cross_series_reducer = "REDUCE_SUM"
      }

      trigger {
        count = 1
      }
    }
  }

  conditions {
    display_name = "No job was submitted for ${var.quiet_minutes} minutes"

    condition_absent {
      filter   = "${local.clusters} AND metric.type = \"dataproc.googleapis.com/cluster/job/submitted_count\""
      duration = "${var.quiet_minutes * 60}s"

      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_SUM"
        cross_series_reducer = "REDUCE_SUM"
      }

      trigger {
        count = 1
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "`last_run.json` in the state has the error, and `lakeingest explain NAME` its runbook. `lakeingest status` says how old the copies are."
  }
}

resource "google_monitoring_alert_policy" "schedule" {
  count                 = local.scheduled
  project               = var.project
  display_name          = "lakeingest ${var.name} is not started"
  combiner              = "OR"
  notification_channels = local.channels

  conditions {
    display_name = "Cloud Scheduler cannot start the workflow"

    condition_matched_log {
      filter = "resource.type = \"cloud_scheduler_job\" AND resource.labels.job_id = \"${local.workflow}\" AND severity >= ERROR"
    }
  }

  alert_strategy {
    auto_close = "86400s"

    notification_rate_limit {
      period = "3600s"
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Dataproc refuses the request of Cloud Scheduler, or does not answer. The entry of the log has its status."
  }
}
